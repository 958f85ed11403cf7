"""Starts `scripted_program.py`: of a module, unlike of a script, Python keeps the bytecode."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # also with `-I`
__import__("scripted_program").main()
