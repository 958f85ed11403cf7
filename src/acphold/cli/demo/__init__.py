"""`acphold demo`: the whole promise on real processes, told step by step, each claim checked."""
