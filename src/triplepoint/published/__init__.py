"""What the paper on removing LayerNorm measured, cell by cell, and the rules that were read from it.

Facts are package data; what a rule is worth is computed from them each time, never typed in.
"""

from triplepoint.published._cells import Cell as Cell
from triplepoint.published._cells import load_cells as load_cells
from triplepoint.published._numbers import PrintedNumber as PrintedNumber
from triplepoint.published._numbers import SeedValues as SeedValues
from triplepoint.published._numbers import load_printed as load_printed
from triplepoint.published._numbers import load_values as load_values
from triplepoint.published.rules import Facts as Facts
from triplepoint.published.rules import Rule as Rule
from triplepoint.published.rules import RuleRecord as RuleRecord
from triplepoint.published.rules import apply_rules as apply_rules
from triplepoint.published.rules import facts_of as facts_of
from triplepoint.published.rules import published_rules as published_rules
from triplepoint.published.rules import record as record
