//! A body's way from one connection to another.
//!
//! One piece is on its way at a time, and none is read before it is wanted: so a peer that is slow is slow for the other one, too, and
//! a request that waits for its turn has nothing of its body in memory.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The end that pieces are put in at.
#[derive(Debug)]
pub(crate) struct Giver<E>(Arc<Shared<E>>);

/// The end that they come out of: a body.
#[derive(Debug)]
pub(crate) struct Taker<E> {
    shared: Arc<Shared<E>>,
    length: Option<u64>,
}

type Shared<E> = Mutex<State<E>>;

#[derive(Debug)]
struct State<E> {
    piece: Option<Result<Frame<Bytes>, E>>,
    /// What is wrong where no end was given.
    lost: Option<E>,
    /// Somebody waits for a piece.
    is_wanted: bool,
    /// No piece follows.
    is_over: bool,
    /// The other end is gone.
    is_left: bool,
    giver: Option<Waker>,
    taker: Option<Waker>,
}

/// A way for a body, of so many octets if that is known, which ends with the error `lost` where the giver is gone before its end.
pub(crate) fn pipe<E>(length: Option<u64>, lost: E) -> (Giver<E>, Taker<E>) {
    let lost = Some(lost);
    let state = State { piece: None, lost, is_wanted: false, is_over: false, is_left: false, giver: None, taker: None };
    let shared = Arc::new(Mutex::new(state));
    (Giver(Arc::clone(&shared)), Taker { shared, length })
}

fn lock<E>(shared: &Shared<E>) -> MutexGuard<'_, State<E>> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<E> Giver<E> {
    /// Waits until a piece is wanted; false where none will be any more.
    pub(crate) fn poll_wanted(&self, context: &mut Context<'_>) -> Poll<bool> {
        let mut state = lock(&self.0);
        match () {
            () if state.is_left => Poll::Ready(false),
            () if state.is_wanted && state.piece.is_none() => Poll::Ready(true),
            () => {
                state.giver = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Puts a piece in that is wanted, the last one perhaps.
    pub(crate) fn give(&self, piece: Result<Frame<Bytes>, E>, is_last: bool) {
        let mut state = lock(&self.0);
        state.is_over |= is_last || piece.is_err();
        (state.piece, state.is_wanted) = (Some(piece), false);
        let waker = state.taker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }

    /// There are no more pieces.
    pub(crate) fn end(self) {
        lock(&self.0).is_over = true;
    }
}

impl<E> Drop for Giver<E> {
    fn drop(&mut self) {
        let mut state = lock(&self.0);
        if !state.is_over {
            (state.is_over, state.piece) = (true, state.lost.take().map(Err));
        }
        let waker = state.taker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<E> Drop for Taker<E> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.is_left = true;
        let waker = state.giver.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
    }
}

impl<E> Body for Taker<E> {
    type Data = Bytes;
    type Error = E;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, E>>> {
        let mut state = lock(&self.shared);
        let piece = state.piece.take();
        if piece.is_some() || state.is_over {
            return Poll::Ready(piece);
        }
        state.is_wanted = true;
        state.taker = Some(context.waker().clone());
        let waker = state.giver.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        Poll::Pending
    }

    fn is_end_stream(&self) -> bool {
        let state = lock(&self.shared);
        state.is_over && state.piece.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http_body_util::BodyExt;

    use super::*;

    fn frame(text: &'static str) -> Result<Frame<Bytes>, &'static str> {
        Ok(Frame::data(Bytes::from_static(text.as_bytes())))
    }

    #[tokio::test]
    async fn pieces_come_out_in_order_and_only_when_they_are_wanted() {
        let (giver, mut taker) = pipe(None, "lost");
        let wanted = poll_fn(|context| Poll::Ready(giver.poll_wanted(context).is_ready())).await;
        assert!(!wanted, "nobody waits yet");
        let giving = async {
            for text in ["a", "b", "c"] {
                assert!(poll_fn(|context| giver.poll_wanted(context)).await);
                giver.give(frame(text), text == "c");
            }
        };
        let taking = async {
            let mut all = String::new();
            while let Some(piece) = taker.frame().await {
                all.push_str(str::from_utf8(piece.unwrap().data_ref().unwrap()).unwrap());
            }
            all
        };
        let ((), all) = tokio::join!(giving, taking);
        assert_eq!(all, "abc");
        assert!(taker.is_end_stream());
    }

    #[tokio::test]
    async fn either_end_hears_when_the_other_is_gone() {
        let (giver, taker) = pipe(Some(7), "lost");
        assert_eq!(taker.size_hint().exact(), Some(7));
        let ((), wanted) = tokio::join!(async { drop(taker) }, poll_fn(|context| giver.poll_wanted(context)));
        assert!(!wanted);
        for ends in [false, true] {
            let (giver, mut taker) = pipe(None, "lost");
            let (piece, ()) = tokio::join!(taker.frame(), async { if ends { giver.end() } else { drop(giver) } });
            assert_eq!(piece.and_then(Result::err), (!ends).then_some("lost"));
            assert!(taker.is_end_stream());
        }
    }

    #[tokio::test]
    async fn behind_an_error_nothing_comes() {
        let (giver, mut taker) = pipe(None, "lost");
        giver.give(Err("broken"), false);
        assert!(matches!(taker.frame().await, Some(Err("broken"))));
        assert!(taker.frame().await.is_none());
    }
}
