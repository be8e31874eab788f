"""Does the shuffled-label ratio say beforehand whether AdamW will grok? How short is the fast-forward?"""
