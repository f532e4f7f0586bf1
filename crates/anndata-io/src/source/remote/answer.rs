use std::cell::Cell;
use std::pin::Pin;

use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpRequest, HttpResponse, HttpService, ReqwestConnector,
};

tokio::task_local! {
    /// Status of the last answer that the task got, 0 for none.
    static STATUS: Cell<u16>;
}

/// Run an attempt; the status of the last answer that it got is the second of what it returns.
///
/// object_store's own error says it only in words.
pub(super) async fn with_status<T>(attempt: impl Future<Output = T>) -> (T, Option<u16>) {
    let scope = STATUS.scope(Cell::new(0), async {
        let result = attempt.await;
        (result, STATUS.with(Cell::get))
    });
    let (result, status) = scope.await;
    (result, Some(status).filter(|status| *status > 0))
}

/// Makes clients that note the status of each answer.
#[derive(Debug)]
pub(super) struct Noting;

impl HttpConnector for Noting {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Client(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct Client(HttpClient);

impl HttpService for Client {
    // What the macro `async_trait` makes of `async fn call(&self, request)`.
    fn call<'s, 'f>(
        &'s self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'f>>
    where
        's: 'f,
        Self: 'f,
    {
        Box::pin(async move {
            let answer = self.0.execute(request).await;
            let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
            // Outside of an attempt nobody asks.
            let _ = STATUS.try_with(|noted| noted.set(status));
            answer
        })
    }
}
