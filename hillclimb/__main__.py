"""`python -m hillclimb` is the command `hillclimb`."""

from hillclimb.agent.cli import main

if __name__ == "__main__":
    main()
