"""Values of cells: constants, comparison, conversion, conditions, selection of rows."""
