//! The query of a request, read into a type; what cannot be read is answered like every other mistake.

use axum::extract::{FromRequestParts, Query};
use axum::response::Response;
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::guard::problem;

/// What the query asks.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Asked<T>, Response> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|Query(asked)| Asked(asked)).map_err(|error| problem(StatusCode::BAD_REQUEST, &error.body_text()))
    }
}
