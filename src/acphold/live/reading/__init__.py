"""Sessions read without attaching to them: from a journal here, or from a server far away."""
