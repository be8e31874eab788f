"""Does the simulation of arXiv 2511.01938 grok as the paper says, and only with weight decay?"""
