//! `[pace]`.

use serde::{Deserialize, Serialize};

use super::units::Span;
use crate::policy::pacing;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Pace {
    default_delay: Span,
    min_delay: Span,
    max_delay: Span,
    max_wait: Span,
    navigation_wait: Span,
    hold_max: Span,
    overlap: bool,
    shared: Shared,
    max_queue: usize,
    requisites: Requisites,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shared {
    Bot,
    Host,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Requisites {
    Burst,
    Paced,
}

impl Default for Pace {
    fn default() -> Pace {
        let pace = pacing::Settings::default();
        Pace {
            default_delay: Span(pace.default_delay),
            min_delay: Span(pace.min_delay),
            max_delay: Span(pace.max_delay),
            max_wait: Span(pace.max_wait),
            navigation_wait: Span(pace.navigation_wait),
            hold_max: Span(pace.hold_max),
            overlap: pace.overlap,
            shared: Shared::Bot,
            max_queue: pace.max_queue,
            requisites: Requisites::Burst,
        }
    }
}

impl Pace {
    pub(super) fn settings(&self) -> pacing::Settings {
        pacing::Settings {
            default_delay: self.default_delay.0,
            min_delay: self.min_delay.0,
            max_delay: self.max_delay.0,
            max_wait: self.max_wait.0,
            navigation_wait: self.navigation_wait.0,
            hold_max: self.hold_max.0,
            overlap: self.overlap,
            shared: match self.shared {
                Shared::Bot => pacing::Shared::Bot,
                Shared::Host => pacing::Shared::Host,
            },
            max_queue: self.max_queue,
            requisites: match self.requisites {
                Requisites::Burst => pacing::Requisites::Burst,
                Requisites::Paced => pacing::Requisites::Paced,
            },
        }
    }
}
