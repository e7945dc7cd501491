"""``python -m eddyline``."""

from eddyline.cli import main

if __name__ == "__main__":
    main()
