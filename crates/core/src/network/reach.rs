//! Is anybody listening there? Asked of many addresses at once.

use std::io;
use std::time::Duration;
use tokio::task::LocalSet;

/// For each `host:port`, whether a connection can be made within `limit`.
pub fn reachable(addresses: &[String], limit: Duration) -> io::Result<Vec<bool>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = LocalSet::new().block_on(&runtime, async {
        let asked: Vec<_> = addresses
            .iter()
            .map(|address| {
                let address = address.clone();
                tokio::task::spawn_local(async move {
                    let connect = tokio::net::TcpStream::connect(address);
                    matches!(tokio::time::timeout(limit, connect).await, Ok(Ok(_)))
                })
            })
            .collect();
        let mut found = Vec::with_capacity(asked.len());
        for task in asked {
            found.push(task.await.unwrap_or(false));
        }
        found
    });
    // A name that does not resolve may keep a thread; nobody waits for it.
    runtime.shutdown_background();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_found_among_others() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let there = listener.local_addr().unwrap().to_string();
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let found = reachable(&[there.clone(), gone, "nonsense".to_owned(), there], Duration::from_secs(5));
        assert_eq!(found.unwrap(), [true, false, false, true]);
    }
}
