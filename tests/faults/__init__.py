"""Every driver call fails once: a suite that runs in a process whose driver can be made to fail.

None of its modules is named like a test, since nothing of it can run elsewhere: ``test_cuda.py`` and
``test_hip.py`` start it.
"""
