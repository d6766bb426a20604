"""The formats of the publishers' files: one reader per format that several data sets may share."""
