"""What it takes to publish acphold: a checked sdist and wheel, and a Homebrew formula."""
