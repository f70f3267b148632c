//! Columns of many rows as arrays: parameters of statements that write any number of rows.

/// One column of many rows as an array.
pub(super) fn to_column<'a, T, C>(rows: impl IntoIterator<Item = &'a T>, value: impl Fn(&'a T) -> C) -> Vec<C>
where
    T: 'a,
{
    rows.into_iter().map(value).collect()
}
