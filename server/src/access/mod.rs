//! Who may do what. Each operation is registered with what it takes ([`Operations::with`]), and a
//! handler sees no more of the ledger than its [`Caller`] may.

mod gate;
mod host;
mod memory;

pub(crate) use gate::Gate;

use std::convert::Infallible;

use assay_api::{ErrorCode, Scope, WorkerId, WorkerRow};
use assay_store::{ProjectStore, Store, StoreError};
use axum::Router;
use axum::extract::{FromRequestParts, Request};
use axum::http::header::EXPECT;
use axum::http::request::Parts;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::Route;
use tower::{Layer, Service};
use utoipa::openapi::path::{Operation, PathItem};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{Components, OpenApi};
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouter};

use crate::app::AppState;
use crate::error::ApiError;
use crate::problems;
use crate::receive::{Incoming, SILENCE};

/// Name of the security scheme in the OpenAPI document.
const SCHEME: &str = "bearer";

/// What an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Nothing: it says nothing of any project.
    Open,
    /// A key of this scope or a larger one.
    Key(Scope),
}

/// Looking at things.
pub(crate) const READ: Access = Access::Key(Scope::Read);
/// Changing what a project has.
pub(crate) const SUBMIT: Access = Access::Key(Scope::Submit);
/// Keys, and who used them.
pub(crate) const ADMIN: Access = Access::Key(Scope::Admin);

impl Access {
    /// Says it in the OpenAPI document.
    fn describe(self, operation: &mut Operation) {
        let Self::Key(scope) = self else {
            // Not left out: that would stand for what the whole document asks for.
            operation.security = Some(Vec::new());
            return;
        };
        operation.security = Some(vec![SecurityRequirement::new(SCHEME, [scope.as_str()])]);
        let answers = &mut operation.responses.responses;
        for (status, answer) in problems::of_access() {
            // 429 of a quota says more.
            answers.entry(status).or_insert(answer);
        }
    }
}

/// The operations of the service. None can be added without saying what it takes.
pub(crate) struct Operations(OpenApiRouter<AppState>);

impl Operations {
    pub(crate) fn new() -> Self {
        Self(OpenApiRouter::new())
    }

    /// Adds the operations of `routes!`, which take `access`.
    pub(crate) fn with(
        self,
        access: Access,
        (schemas, mut paths, router): UtoipaMethodRouter<AppState>,
    ) -> Self {
        for operation in paths.paths.values_mut().flat_map(operations) {
            access.describe(operation);
        }
        let guard = from_fn(move |request: Request, next: Next| admit(access, request, next));
        let router = router.route_layer(guard);
        Self(self.0.routes((schemas, paths, router)))
    }

    /// Puts a layer around those that are there.
    pub(crate) fn layer<L>(self, layer: L) -> Self
    where
        L: Layer<Route> + Clone + Send + Sync + 'static,
        L::Service: Service<Request> + Clone + Send + Sync + 'static,
        <L::Service as Service<Request>>::Response: IntoResponse + 'static,
        <L::Service as Service<Request>>::Error: Into<Infallible> + 'static,
        <L::Service as Service<Request>>::Future: Send + 'static,
    {
        Self(self.0.layer(layer))
    }

    pub(crate) fn merge(self, other: Self) -> Self {
        Self(self.0.merge(other.0))
    }

    /// The router, and all of `document` with what the operations say.
    pub(crate) fn into_parts(self, document: OpenApi) -> (Router<AppState>, OpenApi) {
        let (router, mut document) = OpenApiRouter::with_openapi(document)
            .merge(self.0)
            .split_for_parts();
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some(
                "A key of a project, `assay_..`. Its scope is one of `read`, `submit` and `admin`, \
                 each with what those before it may do. A service on a loopback address of which no \
                 key was ever made takes requests without one.",
            ))
            .build();
        document
            .components
            .get_or_insert_with(Components::new)
            .add_security_scheme(SCHEME, SecurityScheme::Http(scheme));
        (router, document)
    }
}

fn operations(item: &mut PathItem) -> impl Iterator<Item = &mut Operation> {
    [
        &mut item.get,
        &mut item.put,
        &mut item.post,
        &mut item.delete,
        &mut item.options,
        &mut item.head,
        &mut item.patch,
        &mut item.trace,
        &mut item.query,
    ]
    .into_iter()
    .filter_map(Option::as_mut)
}

/// Lets a request pass to its handler, with its [`Caller`].
async fn admit(access: Access, request: Request, next: Next) -> Response {
    let Access::Key(scope) = access else {
        return next.run(request).await;
    };
    let (mut parts, body) = request.into_parts();
    let gate = parts.extensions.get::<Gate>().cloned();
    let admitted = match gate {
        Some(gate) => gate.admit(&parts, scope).await,
        None => Err(ApiError::Internal("the router has no gate".to_owned())),
    };
    match admitted {
        Ok(caller) => {
            parts.extensions.insert(caller);
            next.run(Request::from_parts(parts, body)).await
        }
        Err(error) => {
            let mut body = Incoming {
                body,
                limit: 0,
                silence: SILENCE,
                awaits_leave: parts.headers.contains_key(EXPECT),
            };
            body.drain().await;
            error.into_response()
        }
    }
}

/// Who asks: the ledger as they may see it.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) ledger: ProjectStore,
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| {
            ApiError::Internal("an operation that takes no key asks for its caller".to_owned())
        })
    }
}

/// What belongs to no project.
#[derive(Clone, Debug)]
pub(crate) struct Commons(Store);

impl Commons {
    pub(crate) fn new(store: Store) -> Self {
        Self(store)
    }

    /// See [`Store::ready`].
    pub(crate) async fn ready(&self) -> Result<(), StoreError> {
        self.0.ready().await
    }

    /// See [`Store::live_workers`].
    pub(crate) async fn live_workers(&self) -> Result<u64, StoreError> {
        self.0.live_workers().await
    }

    /// See [`Store::workers`].
    pub(crate) async fn workers(
        &self,
        before: Option<WorkerId>,
        limit: u32,
    ) -> Result<Vec<WorkerRow>, StoreError> {
        self.0.workers(before, limit).await
    }
}

/// A refusal of what the caller may not do.
fn forbidden(detail: impl Into<String>) -> ApiError {
    ApiError::new(ErrorCode::Forbidden, detail)
}
