"""Every driver call fails once: a suite that runs in a process with the software driver on its path.

None of its modules is named like a test, since nothing of it can run elsewhere: ``test_faults.py`` starts it.
"""
