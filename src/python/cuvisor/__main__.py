"""python -m cuvisor: the cuvisor command."""
import os
import sys

import cuvisor

command = cuvisor.command_path()
os.execv(command, [command, *sys.argv[1:]])
