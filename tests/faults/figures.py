"""What the suite has done so far."""

from collections import Counter

injected: Counter[str] = Counter()
"""Faults, by the function that failed."""

states_checked = 0
"""How often everything was looked at after a fault or an interrupt."""

left_by_destruction = 0
"""Objects whose own destruction was made to fail."""

left_by_interrupts = 0
"""Objects that an interrupt has left: just made, or about to be destroyed."""

leaks = 0
"""Objects that were left in any other way."""
