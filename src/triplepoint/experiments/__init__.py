"""The commands of ``triplepoint grok`` as functions: a task and a net in, a run folder out."""
