//! The numbers for machines: what the table says, by keys that stay.

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::Stats;
use super::table::{Row, Value};

/// A map of the numbers of the table: bytes and counts as integers, shares in 0..=1, `null` for what is unknown.
impl Serialize for Stats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows = self.rows(self.footprint());
        // Some formats want to know beforehand.
        let entries = rows.iter().filter(|row| matches!(row, Row::Line(..))).count();
        let mut map = serializer.serialize_map(Some(entries))?;
        for row in rows {
            let Row::Line(key, _, value) = row else { continue };
            match value {
                Value::Count(number) | Value::Bytes(number) => map.serialize_entry(key, &number)?,
                Value::Share(number) | Value::Factor(number) => map.serialize_entry(key, &number)?,
                Value::Unknown => map.serialize_entry(key, &None::<u64>)?,
            }
        }
        map.end()
    }
}
