//! Connections between hosts. Bytes arrive late, in order and whole, or not before the hosts can reach each other again,
//! as with TCP. The pipes between an agent and its members are made of the same.

use super::{EVERYWHERE, World, address_of, here};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What may be on its way, or unread.
const WINDOW: usize = 128 << 10;

/// Who can reach whom, and who listens.
#[derive(Default)]
pub(crate) struct Net {
    /// From whom to whom nothing comes through.
    blocked: BTreeSet<(usize, usize)>,
    /// Hosts that have fallen silent for ever.
    lost: BTreeSet<usize>,
    /// The longest that a segment takes to another host, in milliseconds.
    pub(crate) slowness: u64,
    listeners: BTreeMap<(usize, u16), Rc<RefCell<Queue>>>,
    flows: Vec<Weak<RefCell<Flow>>>,
    last_port: u16,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<SimulatedStream>,
    waker: Option<Waker>,
}

enum Segment {
    Bytes(Vec<u8>),
    Fin,
}

/// One direction of a connection.
struct Flow {
    from: usize,
    to: usize,
    segments: VecDeque<(Instant, Segment)>,
    size: usize,
    last: Instant,
    /// The connection was reset.
    reset: bool,
    reader_is_gone: bool,
    reader: Option<Waker>,
    writer: Option<Waker>,
}

impl Net {
    fn is_blocked(&self, from: usize, to: usize) -> bool {
        self.lost.contains(&from)
            || self.lost.contains(&to)
            || from != to && self.blocked.contains(&(from, to))
    }
}

impl World {
    /// A port that nobody has.
    pub(crate) fn free_port(&self) -> u16 {
        let mut net = self.net.borrow_mut();
        net.last_port += 1;
        40_000 + net.last_port
    }

    fn latency(&self, from: usize, to: usize) -> Duration {
        if from == to {
            return Duration::ZERO;
        }
        let most = self.net.borrow().slowness.max(2);
        Duration::from_millis(self.draw(most + 1))
    }

    /// Nothing comes through any more from one host to another.
    pub(crate) fn block(&self, from: usize, to: usize) {
        self.net.borrow_mut().blocked.insert((from, to));
    }

    /// What was held up arrives.
    pub(crate) fn unblock(&self, from: usize, to: usize) {
        self.net.borrow_mut().blocked.remove(&(from, to));
        self.wake_all();
    }

    /// A host falls silent for ever.
    pub(crate) fn lose_host(&self, host: usize) {
        self.net.borrow_mut().lost.insert(host);
    }

    fn wake_all(&self) {
        let flows: Vec<_> = self.net.borrow().flows.iter().filter_map(Weak::upgrade).collect();
        flows.iter().for_each(|flow| wake(&mut flow.borrow_mut().reader));
        self.healed.notify_waiters();
    }

    /// All connections between two hosts are reset.
    pub(crate) fn break_connections(&self, a: usize, b: usize) {
        let flows: Vec<_> = self.net.borrow().flows.iter().filter_map(Weak::upgrade).collect();
        for flow in flows {
            let mut flow = flow.borrow_mut();
            if (flow.from, flow.to) == (a, b) || (flow.from, flow.to) == (b, a) {
                flow.reset = true;
                wake(&mut flow.reader);
                wake(&mut flow.writer);
            }
        }
    }

    /// A way for bytes, from a host to a host.
    pub(crate) fn flow(self: &Rc<World>, from: usize, to: usize) -> (WriteEnd, ReadEnd) {
        let flow = Rc::new(RefCell::new(Flow {
            from,
            to,
            segments: VecDeque::new(),
            size: 0,
            last: Instant::now(),
            reset: false,
            reader_is_gone: false,
            reader: None,
            writer: None,
        }));
        let mut net = self.net.borrow_mut();
        net.flows.retain(|flow| flow.strong_count() > 0);
        net.flows.push(Rc::downgrade(&flow));
        let read = ReadEnd { flow: flow.clone(), world: self.clone(), sleep: None };
        (WriteEnd { flow, world: self.clone() }, read)
    }
}

fn wake(waker: &mut Option<Waker>) {
    waker.take().into_iter().for_each(Waker::wake);
}

/// Where bytes arrive.
pub(crate) struct ReadEnd {
    flow: Rc<RefCell<Flow>>,
    world: Rc<World>,
    sleep: Option<Pin<Box<Sleep>>>,
}

/// Where bytes are sent.
pub(crate) struct WriteEnd {
    flow: Rc<RefCell<Flow>>,
    world: Rc<World>,
}

impl std::fmt::Debug for ReadEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadEnd")
    }
}
impl std::fmt::Debug for WriteEnd {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WriteEnd")
    }
}

impl WriteEnd {
    /// Sends without waiting, whatever there is already.
    pub(crate) fn push(&self, bytes: &[u8]) {
        self.send(Segment::Bytes(bytes.to_vec()));
    }

    fn send(&self, segment: Segment) {
        let (from, to) = (self.flow.borrow().from, self.flow.borrow().to);
        let latency = self.world.latency(from, to);
        let mut flow = self.flow.borrow_mut();
        let arrival = flow.last.max(Instant::now() + latency);
        flow.last = arrival;
        if let Segment::Bytes(bytes) = &segment {
            flow.size += bytes.len();
        }
        flow.segments.push_back((arrival, segment));
        wake(&mut flow.reader);
    }
}

impl AsyncRead for ReadEnd {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let this = &mut *self;
            let mut flow = this.flow.borrow_mut();
            if flow.reset {
                return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
            }
            flow.reader = Some(context.waker().clone());
            if this.world.net.borrow().is_blocked(flow.from, flow.to) {
                return Poll::Pending;
            }
            let Some((arrival, segment)) = flow.segments.front_mut() else { return Poll::Pending };
            let arrival = *arrival;
            if arrival > Instant::now() {
                drop(flow);
                let sleep = this.sleep.insert(Box::pin(tokio::time::sleep_until(arrival)));
                match sleep.as_mut().poll(context) {
                    Poll::Ready(()) => continue,
                    Poll::Pending => return Poll::Pending,
                }
            }
            let Segment::Bytes(bytes) = segment else { return Poll::Ready(Ok(())) };
            let count = bytes.len().min(buffer.remaining());
            buffer.put_slice(&bytes[..count]);
            bytes.drain(..count);
            let is_read = bytes.is_empty();
            if is_read {
                flow.segments.pop_front();
            }
            flow.size -= count;
            wake(&mut flow.writer);
            return Poll::Ready(Ok(()));
        }
    }
}

impl Drop for ReadEnd {
    fn drop(&mut self) {
        let mut flow = self.flow.borrow_mut();
        flow.reader_is_gone = true;
        wake(&mut flow.writer);
    }
}

impl AsyncWrite for WriteEnd {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let mut flow = self.flow.borrow_mut();
        let is_known = flow.reader_is_gone && !self.world.net.borrow().is_blocked(flow.to, flow.from);
        if flow.reset || is_known {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if flow.size >= WINDOW {
            flow.writer = Some(context.waker().clone());
            return Poll::Pending;
        }
        drop(flow);
        self.push(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl Drop for WriteEnd {
    fn drop(&mut self) {
        self.send(Segment::Fin);
    }
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct SimulatedStream {
    pub(crate) read: ReadEnd,
    pub(crate) write: WriteEnd,
    pub(crate) local: SocketAddr,
    pub(crate) peer: SocketAddr,
}

/// Somebody that takes connections.
#[derive(Debug)]
pub(crate) struct SimulatedListener {
    world: Rc<World>,
    host: usize,
    pub(crate) port: u16,
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("World")
    }
}

/// Listens on this machine.
pub(crate) fn listen(port: u16) -> Option<io::Result<SimulatedListener>> {
    let here = here()?;
    let (world, host) = (here.world.clone(), here.host());
    let port = if port == 0 { world.free_port() } else { port };
    let mut net = world.net.borrow_mut();
    if net.listeners.contains_key(&(host, port)) {
        return Some(Err(io::ErrorKind::AddrInUse.into()));
    }
    net.listeners.insert((host, port), Rc::default());
    drop(net);
    Some(Ok(SimulatedListener { world, host, port }))
}

impl SimulatedListener {
    pub(crate) async fn accept(&self) -> io::Result<(SimulatedStream, SocketAddr)> {
        let queue = self.world.net.borrow().listeners[&(self.host, self.port)].clone();
        std::future::poll_fn(|context| {
            let mut queue = queue.borrow_mut();
            match queue.waiting.pop_front() {
                Some(stream) => {
                    let peer = stream.peer;
                    Poll::Ready(Ok((stream, peer)))
                }
                None => {
                    queue.waker = Some(context.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }
}

impl Drop for SimulatedListener {
    fn drop(&mut self) {
        let queue = self.world.net.borrow_mut().listeners.remove(&(self.host, self.port));
        drop(queue);
    }
}

/// Connects from this machine.
pub(crate) async fn connect(address: SocketAddr) -> Option<io::Result<SimulatedStream>> {
    let here = here()?;
    let (world, from) = (here.world.clone(), here.host());
    let to = host_of(address.ip(), from)?;
    let there = world.latency(from, to);
    tokio::time::sleep(there).await;
    loop {
        let healed = world.healed.notified();
        let is_blocked = world.net.borrow().is_blocked(from, to) || world.net.borrow().is_blocked(to, from);
        if !is_blocked {
            break;
        }
        healed.await;
    }
    let back = world.latency(to, from);
    let queue = world.net.borrow().listeners.get(&(to, address.port())).cloned();
    let Some(queue) = queue else {
        tokio::time::sleep(back).await;
        return Some(Err(io::ErrorKind::ConnectionRefused.into()));
    };
    let (to_them, from_us) = world.flow(from, to);
    let (to_us, from_them) = world.flow(to, from);
    let local_ip = if address.ip().is_loopback() { address.ip() } else { address_of(from) };
    let local = SocketAddr::new(local_ip, world.free_port());
    let stream = SimulatedStream { read: from_them, write: to_them, local, peer: address };
    {
        let mut queue = queue.borrow_mut();
        queue.waiting.push_back(SimulatedStream { read: from_us, write: to_us, local: address, peer: local });
        wake(&mut queue.waker);
    }
    tokio::time::sleep(back).await;
    Some(Ok(stream))
}

fn host_of(address: IpAddr, from: usize) -> Option<usize> {
    match address {
        IpAddr::V4(ip) if ip.is_loopback() || ip == EVERYWHERE => Some(from),
        IpAddr::V4(ip) if ip.octets()[0] == 10 => Some(usize::from(ip.octets()[3]) - 1),
        _ => None,
    }
}

/// A port on this machine that nobody has.
pub(crate) fn free_port() -> Option<u16> {
    here().map(|here| here.world.free_port())
}
