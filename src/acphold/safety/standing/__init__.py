"""Standing answers: which questions of an agent a person's rules answer, and which are asked."""
