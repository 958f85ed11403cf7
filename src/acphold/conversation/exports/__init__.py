"""Sessions as files: Markdown, lines of JSON, a page of HTML."""
