"""Hooks: functions in ``hooks.py`` beside a model, which convert its requests and answers.

request   what ``preprocess`` gets
hooks     calls of the functions, and checks of what they return
watchdog  interrupts functions that do not end in time
loading   imports the file
"""

from typing import Final

HOOKS: Final = "hooks.py"
