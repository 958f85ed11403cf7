"""What nobody else should read, taken out of what is written down: secrets, people, places."""
