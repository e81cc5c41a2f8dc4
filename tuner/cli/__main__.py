"""``python -m routecast.tuner.cli``."""

from routecast.tuner.cli import main

main()
