//! Validation of the places of regions.

use crate::config::region_places::{REGION_PLACES_MAX, RegionPlace};
use crate::config::validate::ConfigErrors;

impl ConfigErrors {
    /// Parses the places of regions; each region has one.
    pub(super) fn parse_region_places(&mut self, texts: Option<Vec<String>>) -> Vec<RegionPlace> {
        let texts = texts.unwrap_or_default();
        if texts.len() > REGION_PLACES_MAX {
            let problem = format!("{} places are listed; list at most {REGION_PLACES_MAX}", texts.len());
            self.add_invalid_value("region_places", problem);
            return Vec::new();
        }
        let mut places: Vec<RegionPlace> = Vec::with_capacity(texts.len());
        for text in &texts {
            match RegionPlace::parse(text) {
                Err(message) => self.add_invalid_value("region_places", message),
                Ok(place) if places.iter().any(|other| other.region == place.region) => {
                    self.add_invalid_value("region_places", format!("{} is set twice; set it once", place.region));
                }
                Ok(place) => places.push(place),
            }
        }
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors_of(texts: &[String]) -> String {
        let mut errors = ConfigErrors(Vec::new());
        errors.parse_region_places(Some(texts.to_vec()));
        errors.0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn region_places_parse_and_print_alike() {
        let texts: Vec<String> = ["eu=50.1/8.7", "us east=39/-77.5", "odd=name=-90/180"].map(String::from).into();
        let mut errors = ConfigErrors(Vec::new());
        let places = errors.parse_region_places(Some(texts.clone()));
        assert!(errors.0.is_empty());
        assert_eq!(places.iter().map(ToString::to_string).collect::<Vec<_>>(), texts);
        assert_eq!((&*places[2].region, places[2].latitude), ("odd=name", -90.0));
    }

    #[test]
    fn invalid_region_place_error_shows_the_syntax() {
        for text in ["eu", "eu=50.1", "=50.1/8.7", "eu=91/0", "eu=0/181", "eu=NaN/0", "eu=1/2/3"] {
            let message = errors_of(&[text.to_owned()]);
            let expected = format!("region_places: `{text}` is not a place; write NAME=LATITUDE/LONGITUDE");
            assert!(message.starts_with(&expected), "{message}");
        }
        let twice = ["eu=1/2", "eu=3/4"].map(String::from);
        assert_eq!(errors_of(&twice), "region_places: eu is set twice; set it once");
        let many: Vec<String> = (0..=REGION_PLACES_MAX).map(|number| format!("r{number}=0/0")).collect();
        assert_eq!(errors_of(&many), "region_places: 257 places are listed; list at most 256");
    }
}
