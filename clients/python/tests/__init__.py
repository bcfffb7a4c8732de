"""Tests against a real agent, on a real emulator: python3 -m unittest discover -t . -s tests

SPINDLE names the command, which is otherwise built. SPINDLE_EMULATOR names emulator_main, which is otherwise looked for in
PATH and beside gcloud.
"""

import logging

# The losses that tests bring about are no news.
logging.getLogger("spindle_lock").addHandler(logging.NullHandler())
