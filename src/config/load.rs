//! Loading of a configuration: merges file, variables and flags; conversion back to TOML.

use std::path::Path;

use crate::config::error::ConfigError;
use crate::config::raw::{self, RawSettings, ServeFlags};
use crate::config::{Config, validate};

impl Config {
    /// Merges `flags`, which already include the variables, with the file that they name, and validates the result.
    /// `variables` are the names of all environment variables; unknown `FIRETEAM_*` names are errors.
    pub fn load(flags: ServeFlags, variables: impl Iterator<Item = String>) -> Result<Self, Vec<ConfigError>> {
        let mut errors = raw::unknown_variable_errors(variables);
        let from_file = match &flags.config {
            Some(file) => {
                raw::read_toml_file(file).map_err(|file_errors| errors.extend(file_errors)).unwrap_or_default()
            }
            None => RawSettings::default(),
        };
        match validate::validate_settings(flags.settings.with_fallback(from_file), Path::exists) {
            Ok(config) if errors.is_empty() => Ok(config),
            Ok(_) => Err(errors),
            Err(setting_errors) => {
                errors.extend(setting_errors);
                Err(errors)
            }
        }
    }

    /// Configuration from the text of a TOML file only. `name` is the file name in errors.
    pub fn from_toml(name: &Path, text: &str) -> Result<Self, Vec<ConfigError>> {
        validate::validate_settings(raw::parse_toml(name, text)?, Path::exists)
    }

    /// Complete configuration as TOML. It loads as the same configuration, except for a password in the store URL. It
    /// contains no secrets: keys are in separate files.
    ///
    /// Fails for a path that is not UTF-8.
    pub fn to_toml(&self) -> Result<String, toml::ser::Error> {
        toml::to_string(&validate::to_raw_settings(self))
    }
}
