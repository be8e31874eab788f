"""Do the derived numbers of arXiv 2604.23434 follow from its own values per seed?"""
