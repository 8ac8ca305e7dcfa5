//! A resolver (RFC 1035) that knows one address for every name.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::net::UdpSocket;

use crate::Error;

pub async fn answer(listen: SocketAddr, address: Ipv4Addr) -> Result<(), Error> {
    let socket = UdpSocket::bind(listen).await?;
    let mut question = [0; 512];
    loop {
        let (length, from) = socket.recv_from(&mut question).await?;
        if let Some(answer) = answer_to(&question[..length], address) {
            // Who asked may be gone.
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

/// The answer to a message with one question: the address where it is asked for, no record for any other type.
fn answer_to(question: &[u8], address: Ipv4Addr) -> Option<Vec<u8>> {
    let mut end = 12;
    while *question.get(end)? != 0 {
        end += usize::from(question[end]) + 1;
    }
    let asked = question.get(12..end + 5)?;
    let is_address = asked.ends_with(&[0, 1, 0, 1]);
    let mut answer = question[..2].to_vec();
    // An answer with authority, recursion as wished; one question, and perhaps one record.
    answer.extend([0x84 | (question[2] & 1), 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    answer.extend(asked);
    if is_address {
        // The name in the question; address; 60 seconds.
        answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4]);
        answer.extend(address.octets());
    }
    Some(answer)
}
