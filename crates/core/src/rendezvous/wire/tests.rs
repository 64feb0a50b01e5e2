use super::*;
use crate::network::TcpListener;
use crate::rendezvous::message::ToMember;

fn pair() -> (Writer<tokio::io::DuplexStream>, Reader<tokio::io::DuplexStream>, Key) {
    let (a, b) = tokio::io::duplex(1 << 20);
    let key = Key::random().unwrap();
    let seal = || Seal::new(&key, Direction::ToLeader);
    let reader = Reader { stream: BufReader::with_capacity(READ_AHEAD, b), seal: seal(), limit: 1000 };
    (Writer { stream: a, unsent: Vec::new(), seal: seal() }, reader, key)
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// What a writer sends for a message, as bytes.
async fn frame(message: &str) -> (Vec<u8>, Key) {
    let (mut writer, mut reader, key) = pair();
    writer.write(&message).await.unwrap();
    drop(writer.stream);
    let mut bytes = Vec::new();
    reader.stream.read_to_end(&mut bytes).await.unwrap();
    (bytes, key)
}

async fn read(bytes: &[u8], key: Key) -> Vec<Result<String, String>> {
    let stream = BufReader::with_capacity(READ_AHEAD, bytes);
    let mut reader = Reader { stream, seal: Seal::new(&key, Direction::ToLeader), limit: 1000 };
    let mut read = Vec::new();
    loop {
        let message = reader.read::<String>().await.map_err(|error| error.to_string());
        let ended = message.is_err();
        read.push(message);
        if ended {
            return read;
        }
    }
}

#[test]
fn frames_arrive_once_unchanged_and_in_order() {
    block_on(async {
        let (bytes, key) = frame("hello").await;
        let closed = || Err("the connection was closed".to_owned());
        let bad = || Err("a frame was changed, repeated or out of order".to_owned());
        assert_eq!(read(&bytes, key.clone()).await, [Ok("hello".to_owned()), closed()]);
        assert_eq!(read(&[bytes.clone(), bytes.clone()].concat(), key.clone()).await[1], bad(), "replayed");
        for at in [4, 10, 20, bytes.len() - 1] {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert_eq!(read(&changed, key.clone()).await, [bad()], "byte {at}");
        }
        assert_eq!(read(&bytes[..bytes.len() - 1], key.clone()).await, [closed()], "truncated");
        assert_eq!(read(&bytes, Key::random().unwrap()).await, [bad()], "another key");
        let huge = [&(u32::MAX >> 1).to_be_bytes(), &bytes[4..]].concat();
        assert!(read(&huge, key).await[0].as_ref().unwrap_err().contains("2147483647 bytes"));
    });
}

/// What is sealed once for two members is one frame to each of them, and to nobody else.
#[test]
fn what_is_shared_is_a_frame_like_others() {
    block_on(async {
        let shared = Shared::new(b"\"hello\"".to_vec()).unwrap();
        let mut sent = Vec::new();
        for _ in 0..2 {
            let (mut writer, mut reader, key) = pair();
            writer.write_shared(&shared).await.unwrap();
            writer.write(&"next").await.unwrap();
            drop(writer.stream);
            let mut bytes = Vec::new();
            reader.stream.read_to_end(&mut bytes).await.unwrap();
            sent.push((bytes, key));
        }
        let bad = || Err("a frame was changed, repeated or out of order".to_owned());
        for (bytes, key) in &sent {
            let read = read(bytes, key.clone()).await;
            assert_eq!(read[..2], [Ok("hello".to_owned()), Ok("next".to_owned())]);
        }
        let (bytes, key) = &sent[0];
        assert_eq!(read(bytes, sent[1].1.clone()).await, [bad()], "another connection's");
        let first = 4 + 32 + TAG + shared.sealed.len();
        let twice = [&bytes[..first], &bytes[..first]].concat();
        assert_eq!(read(&twice, key.clone()).await[1], bad(), "repeated");
        for at in 0..first {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&changed, key.clone()).await[0].is_err(), "byte {at}");
        }
        // A liar that has the key: too short for what its length says it is.
        let length = (FOR_MANY | 20).to_be_bytes();
        let short = [length.as_slice(), &[7; 20]].concat();
        assert_eq!(read(&short, key.clone()).await, [bad()]);
    });
}

#[test]
fn a_frame_that_goes_the_other_way_is_refused() {
    block_on(async {
        let (bytes, key) = frame("hello").await;
        let seal = Seal::new(&key, Direction::ToMember);
        let mut reader = Reader { stream: BufReader::new(bytes.as_slice()), seal, limit: 1000 };
        assert!(matches!(reader.read::<String>().await, Err(WireError::BadSeal)));
    });
}

async fn shake(leaders: Key, joiners: Key, first: ToLeader) -> (Result<(), String>, Result<(), String>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let leader = async {
        let (stream, _) = listener.accept().await.unwrap();
        let (mut reader, mut writer) =
            accept(stream, &leaders, |_| {}).await.map_err(|error| error.to_string())?;
        assert_eq!(reader.read::<ToLeader>().await.unwrap(), first, "it came with the proof");
        writer.write(&ToMember::Alive).await.map_err(|error| error.to_string())
    };
    let joiner = async {
        let stream = TcpStream::connect(address).await.unwrap();
        join(stream, &joiners, &first).await.map(|_| ()).map_err(|error| error.to_string())
    };
    let local = tokio::task::LocalSet::new();
    local.run_until(async { tokio::join!(leader, joiner) }).await
}

#[test]
fn a_wrong_key_is_told_apart_from_a_broken_connection() {
    block_on(async {
        let key = Key::random().unwrap();
        // The longer one is still on its way when the leader says no.
        for length in [1, 100_000] {
            let first = ToLeader::Failed { code: 1, why: "x".repeat(length) };
            assert_eq!(shake(key.clone(), key.clone(), first.clone()).await, (Ok(()), Ok(())));
            let (leader, joiner) = shake(key.clone(), Key::random().unwrap(), first).await;
            assert_eq!(joiner, Err("it has another key".to_owned()));
            assert_eq!(leader, Err("it has another key".to_owned()));
        }
    });
}

/// What a leader says to bytes, until it closes the connection.
async fn said_to(key: &Key, said: &[u8]) -> (Vec<u8>, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stranger = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    let leader = async { accept(stream, key, |_| {}).await.unwrap_err().to_string() };
    let stranger = async {
        let (mut from_leader, mut to_leader) = stranger.into_split();
        to_leader.write_all(said).await.unwrap();
        let mut heard = Vec::new();
        _ = from_leader.read_to_end(&mut heard).await;
        heard
    };
    let (why, heard) = tokio::join!(leader, stranger);
    (heard, why)
}

/// Neither what a stranger hears nor its length depends on the key: there is nothing to guess against.
#[test]
fn who_has_not_proved_the_key_gets_nothing_that_depends_on_it() {
    block_on(async {
        let key = Key::random().unwrap();
        let greeting = [MAGIC.as_slice(), &[7; 32]].concat();
        let (heard, why) = said_to(&key, &[greeting.as_slice(), &[9; 32]].concat()).await;
        assert_eq!((heard.len(), heard[40], why.as_str()), (41, 0, "it has another key"));
        let ours = &heard[8..40];
        // The leader's proof, sent back, is no joiner's.
        assert_ne!(key.mac(b"leader", &[&[7; 32], ours]), key.mac(b"joiner", &[ours, &[7; 32]]));
        let (heard, why) = said_to(&key, b"RALLYPT1 an earlier version, of 40 bytes").await;
        assert!(heard.is_empty() && why.contains("another version"), "{why}");
        let (heard, why) = said_to(&key, &[7; 40]).await;
        assert!(heard.is_empty() && why == "it did not say what a rallypoint says", "{why}");
    });
}

/// Somebody else at the first address, nobody at the second, the leader at the third.
#[test]
fn an_address_where_somebody_else_answers_does_not_stop_the_search() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, async {
        let leader = TcpListener::bind("127.0.0.3:0").await.unwrap();
        let port = leader.local_addr().unwrap().port();
        let foreign = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
        let (key, other) = (Key::random().unwrap(), Key::random().unwrap());
        let addresses: Vec<SocketAddr> = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
            .map(|ip| SocketAddr::new(ip.parse().unwrap(), port))
            .into();
        // A leader of another job, then one that hangs up, then one that speaks something else.
        for way in 0..3 {
            let foreign = async {
                let (stream, _) = foreign.accept().await.unwrap();
                match way {
                    0 => _ = accept(stream, &other, |_| {}).await,
                    1 => drop(stream),
                    _ => {
                        let (mut reader, mut writer) = stream.into_split();
                        writer.write_all(b"SSH-2.0-OpenSSH_9.6\r\n").await.unwrap();
                        _ = reader.read_to_end(&mut Vec::new()).await;
                    }
                }
            };
            let leader = async {
                let (stream, _) = leader.accept().await.unwrap();
                let (reader, mut writer) = accept(stream, &key, |_| {}).await.unwrap();
                writer.write(&ToMember::Alive).await.unwrap();
                (reader, writer)
            };
            let all = async { tokio::join!(reach(&addresses, &key, |_| ToLeader::Alive), foreign, leader).0 };
            let reached = tokio::time::timeout(Duration::from_secs(30), all).await;
            assert!(matches!(reached, Ok(Ok(_))), "{way}: {reached:?}");
        }
        drop(leader);
        let foreign = async {
            let (stream, _) = foreign.accept().await.unwrap();
            accept(stream, &other, |_| {}).await.unwrap_err()
        };
        let (reached, _) = tokio::join!(reach(&addresses, &key, |_| ToLeader::Alive), foreign);
        assert_eq!(reached.unwrap_err().to_string(), "it has another key");
    });
}
