//! Gives the running engine new rulesets, whole, or keeps the old ones.
