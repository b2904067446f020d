//! Leases: page-aligned memory from a pool that is reused, charged for what is held; dropping a lease gives
//! it back.
//!
//! A pool has a limit (`--memory`). Who may have how much of it is decided in `budget`; here are the memory
//! itself, those who wait for it, and what is charged without being mapped: a [`MemoryCharge`] stands for
//! what the allocator gave.

use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use flatout_settings::format_size;
use memmap2::{Advice, MmapMut, MmapOptions};

use crate::base::error::{Error, ErrorKind};
use crate::memory::waits::Waiters;
use flatout_policy::budget::{self, Budget, Ticket};

/// Slabs of this size and more ask for huge pages: fewer faults on first touch, fewer TLB misses after.
const HUGE_PAGE_BYTES: usize = 2 << 20;
const PAGE_BYTES: usize = 4096;
/// What is shorter and belongs to no pool is taken from the heap: a mapping for each of many small objects
/// costs a system call to make, another to give back, a page of each, and the kernel allows 65,530.
const HEAP_BYTES_MAX: usize = 256 << 10;
/// A line of the cache, and as much as any vector instruction wants.
const HEAP_ALIGN: usize = 64;
/// Idle slabs kept for reuse; more are unmapped when given back.
const IDLE_BYTES_MAX: u64 = 256 << 20;

/// A pool of anonymous mappings. Fresh pages cost more than receiving into them (docs/numbers.md), so slabs
/// are kept, as far as the limit goes.
pub(crate) struct Pool {
    state: Mutex<State>,
    /// Granted bytes in rooms that the writers of streams have: only they can free these.
    with_writers: AtomicU64,
    /// How many rooms they have filled so far.
    filled: AtomicU64,
}

struct State {
    budget: Budget,
    /// The one given back last is the last: it is the first to be taken again, while its pages are hot.
    idle: Vec<Slab>,
    idle_bytes: u64,
    waits: Waiters,
}

impl Default for Pool {
    /// Without a limit.
    fn default() -> Pool {
        Pool::new(u64::MAX / 2, 0)
    }
}

impl Pool {
    /// A pool that holds `limit_bytes` at most, of which so many are kept for what is charged.
    pub(crate) fn new(limit_bytes: u64, set_aside_bytes: u64) -> Pool {
        let budget = Budget::new(limit_bytes, set_aside_bytes);
        let state = State { budget, idle: Vec::new(), idle_bytes: 0, waits: Waiters::default() };
        Pool { state: Mutex::new(state), with_writers: AtomicU64::new(0), filled: AtomicU64::new(0) }
    }

    /// Memory of `bytes`, rounded up to whole pages, now: charged, not asked for.
    pub(crate) fn lease(self: &Arc<Pool>, bytes: usize) -> Result<Lease, Error> {
        let bytes = in_pages(bytes);
        self.lock().budget.charge(bytes as u64);
        self.filled(bytes, Account::Charged)
    }

    /// Counts bytes that the allocator gives.
    pub(crate) fn charge(self: &Arc<Pool>, bytes: u64) -> MemoryCharge {
        let mut charge = MemoryCharge { pool: self.clone(), bytes: 0 };
        charge.set(bytes);
        charge
    }

    /// Somebody who will ask for memory again and again.
    pub(crate) fn holder(self: &Arc<Pool>) -> Holder {
        Holder { pool: self.clone(), number: self.lock().budget.new_holder() }
    }

    /// Whether more is held than the limit.
    pub(crate) fn is_over(&self) -> bool {
        self.lock().budget.is_over()
    }

    /// Whether somebody waits for memory.
    pub(crate) fn is_short(&self) -> bool {
        self.lock().budget.is_waited_for()
    }

    /// Bytes that are held now, charged and granted.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.lock().budget.held()
    }

    /// Counts the rooms that the writer of a stream has.
    pub(crate) fn with_writer(&self) -> WithWriter<'_> {
        WithWriter { pool: self, bytes: 0 }
    }

    /// Where writers of streams have all that is granted, so that no transfer will give any of it back, how
    /// many rooms they have filled so far.
    pub(crate) fn all_with_writers(&self) -> Option<u64> {
        let all = self.lock().budget.granted() == self.with_writers.load(Ordering::Relaxed);
        all.then(|| self.filled.load(Ordering::Relaxed))
    }

    /// A lease on bytes that are accounted for already.
    fn filled(self: &Arc<Pool>, bytes: usize, account: Account) -> Result<Lease, Error> {
        let slab = self.take(bytes).inspect_err(|_| self.lock().release(account, bytes as u64))?;
        Ok(Lease { slab: Some(slab), pool: self.clone(), account })
    }

    /// A slab of that very size: the last one used, if there is one.
    fn take(&self, bytes: usize) -> Result<Slab, Error> {
        let mut state = self.lock();
        if let Some(at) = state.idle.iter().rposition(|slab| slab.bytes == bytes) {
            state.idle_bytes -= bytes as u64;
            return Ok(state.idle.remove(at));
        }
        let surplus = state.surplus();
        drop(state);
        drop(surplus);
        // The pool's limit says how much there may be, not the kernel.
        Slab::map(bytes, MmapOptions::new().no_reserve_swap())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Idle slabs for which there is no room, to be unmapped when the lock has been given back; those that
    /// have been idle for the longest go first.
    #[must_use]
    fn surplus(&mut self) -> Vec<Slab> {
        let room = self.budget.limit().saturating_sub(self.budget.held()).min(IDLE_BYTES_MAX);
        let mut gone = 0;
        while self.idle_bytes > room {
            self.idle_bytes -= self.idle[gone].bytes as u64;
            gone += 1;
        }
        self.idle.drain(..gone).collect()
    }

    /// Bytes are held no more.
    fn release(&mut self, account: Account, bytes: u64) {
        let granted = match account {
            Account::Charged => self.budget.discharge(bytes),
            Account::Granted(holder) => self.budget.give_back(holder, bytes),
        };
        self.waits.on_granted(granted);
    }
}

/// On which account a lease is held.
#[derive(Clone, Copy)]
enum Account {
    Charged,
    Granted(budget::Holder),
}

/// Bytes of the allocator that count as the client's memory while it lives.
pub struct MemoryCharge {
    pool: Arc<Pool>,
    bytes: u64,
}

impl MemoryCharge {
    /// Whether more is held than the limit, by all together: what need not be kept should go.
    pub fn is_over(&self) -> bool {
        self.pool.is_over()
    }

    /// How many bytes count.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Another charge on the same memory, of nothing yet.
    pub(crate) fn another(&self) -> MemoryCharge {
        self.pool.charge(0)
    }

    /// That many bytes count from now on.
    pub fn set(&mut self, bytes: u64) {
        let before = std::mem::replace(&mut self.bytes, bytes);
        if before == bytes {
            return;
        }
        let mut state = self.pool.lock();
        let surplus = match bytes > before {
            true => {
                state.budget.charge(bytes - before);
                state.surplus()
            }
            false => {
                state.release(Account::Charged, before - bytes);
                Vec::new()
            }
        };
        drop(state);
        drop(surplus);
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Bytes that the writer of one stream has. Dropped, it has none.
pub(crate) struct WithWriter<'a> {
    pool: &'a Pool,
    bytes: u64,
}

impl WithWriter<'_> {
    pub(crate) fn add(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.pool.with_writers.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// It has filled a room.
    pub(crate) fn remove(&mut self, bytes: usize) {
        self.bytes -= bytes as u64;
        self.pool.filled.fetch_add(1, Ordering::Relaxed);
        self.pool.with_writers.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

impl Drop for WithWriter<'_> {
    fn drop(&mut self) {
        self.pool.with_writers.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Asks a pool for memory, in turn with other holders.
pub(crate) struct Holder {
    pool: Arc<Pool>,
    number: budget::Holder,
}

impl Holder {
    /// Memory of `bytes`, rounded up to whole pages, once there is room for it. A wait that is dropped is
    /// over.
    ///
    /// # Errors
    /// The machine has none.
    pub(crate) async fn lease(&self, bytes: usize) -> Result<Lease, Error> {
        let bytes = in_pages(bytes);
        Asking { holder: self, bytes: bytes as u64, ticket: None }.await;
        self.pool.filled(bytes, Account::Granted(self.number))
    }
}

impl Holder {
    /// Memory of `bytes` at once, or none: only where nobody waits, and `left` bytes more would be free.
    ///
    /// # Errors
    /// The machine has none.
    pub(crate) fn lease_at_once(&self, bytes: usize, left: u64) -> Result<Option<Lease>, Error> {
        let bytes = in_pages(bytes);
        let is_granted = self.pool.lock().budget.take_at_once(self.number, bytes as u64, left);
        is_granted.then(|| self.pool.filled(bytes, Account::Granted(self.number))).transpose()
    }
}

/// A wish on its way.
struct Asking<'a> {
    holder: &'a Holder,
    bytes: u64,
    ticket: Option<Ticket>,
}

impl Future for Asking<'_> {
    /// What was asked for is the holder's now.
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let Holder { pool, number } = this.holder;
        let mut state = pool.lock();
        let State { budget, waits, .. } = &mut *state;
        waits.poll_turn(&mut this.ticket, cx, || budget.ask(*number, this.bytes))
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let Holder { pool, number } = self.holder;
        let mut state = pool.lock();
        match state.waits.leave(ticket) {
            true => state.release(Account::Granted(*number), self.bytes),
            false => {
                let granted = state.budget.withdraw(ticket);
                state.waits.on_granted(granted);
            }
        }
    }
}

fn in_pages(bytes: usize) -> usize {
    bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES)
}

/// Bytes held from the pool. The memory is initialised (zeroed by the kernel, or left from an earlier
/// holder).
pub(crate) struct Lease {
    slab: Option<Slab>,
    pool: Arc<Pool>,
    account: Account,
}

impl Lease {
    /// Where the bytes start; valid for `len()` bytes as long as the lease lives.
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.slab().start()
    }

    pub(crate) fn len(&self) -> usize {
        self.slab().bytes
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        self.slab.as_mut().expect("a lease has its slab until it is dropped").as_mut_slice()
    }

    fn slab(&self) -> &Slab {
        self.slab.as_ref().expect("a lease has its slab until it is dropped")
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(slab) = self.slab.take() else { return };
        let mut state = self.pool.lock();
        // Idle first, so that whoever is granted these bytes finds the slab that they are.
        let bytes = slab.bytes as u64;
        state.idle_bytes += bytes;
        state.idle.push(slab);
        state.release(self.account, bytes);
        let surplus = state.surplus();
        drop(state);
        drop(surplus);
    }
}

/// One anonymous mapping, or a little of the heap; given back on drop.
pub(crate) struct Slab {
    start: NonNull<u8>,
    bytes: usize,
    /// What keeps them.
    _memory: Memory,
}

enum Memory {
    Mapped(#[expect(dead_code, reason = "unmapped when it is dropped")] MmapMut),
    Heap(#[expect(dead_code, reason = "freed when it is dropped")] Vec<u8>),
}

// SAFETY: a slab is plain memory with one owner; nothing about it is bound to the thread that mapped it.
unsafe impl Send for Slab {}
// SAFETY: a shared slab only tells its address and size; those who write through the address answer for it.
unsafe impl Sync for Slab {}

impl Slab {
    /// Of no pool: `bytes`, all zeros, at least one. What is mapped is rounded up to whole pages; the kernel
    /// refuses more than this machine could ever have.
    pub(crate) fn outright(bytes: u64) -> Result<Slab, Error> {
        let bytes = addressable(bytes)?;
        if bytes < HEAP_BYTES_MAX {
            return Ok(Slab::of_the_heap(bytes));
        }
        let pages = bytes.checked_next_multiple_of(PAGE_BYTES).unwrap_or(bytes);
        Slab::map(pages, &mut MmapOptions::new())
    }

    fn of_the_heap(bytes: usize) -> Slab {
        let mut memory = vec![0; bytes + HEAP_ALIGN];
        let aligned = memory.as_ptr().align_offset(HEAP_ALIGN);
        Slab { start: NonNull::from(&mut memory[aligned..]).cast(), bytes, _memory: Memory::Heap(memory) }
    }

    fn map(bytes: usize, options: &mut MmapOptions) -> Result<Slab, Error> {
        let mut memory = options.len(bytes).map_anon().map_err(|refused| {
            Error::local(&format!("cannot have {} of memory", format_size(bytes as u64)), refused)
        })?;
        if bytes >= HUGE_PAGE_BYTES {
            // A refusal changes nothing.
            let _ = memory.advise(Advice::HugePage);
        }
        Ok(Slab { start: NonNull::from(&mut memory[..]).cast(), bytes, _memory: Memory::Mapped(memory) })
    }

    /// Where it starts; valid for its bytes as long as it lives.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// What stands for the start where there is no byte: aligned as any other.
    pub(crate) fn nowhere() -> *mut u8 {
        std::ptr::without_provenance_mut(PAGE_BYTES)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: readable for `bytes` bytes and initialised; whoever writes through the address meanwhile
        // answers for it.
        unsafe { std::slice::from_raw_parts(self.start(), self.bytes) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: writable for `bytes` bytes and initialised; nobody else has the slab.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.bytes) }
    }
}

/// Turns a size of a setting into one that this machine can address.
pub(crate) fn addressable(bytes: u64) -> Result<usize, Error> {
    usize::try_from(bytes)
        .map_err(|_| Error::new(ErrorKind::LocalIo, format!("{bytes} bytes do not fit into memory")))
}

#[cfg(test)]
mod tests {
    use std::task::{Wake, Waker};

    use super::*;

    #[test]
    fn memory_is_charged_while_held_and_reused_after() {
        let pool = Arc::new(Pool::default());
        let mut lease = pool.lease(10_000).expect("three pages can be had");
        assert_eq!((lease.len(), pool.held_bytes()), (12_288, 12_288));
        lease.as_mut_slice()[9_999] = 7;
        let address = lease.as_ptr();
        drop(lease);
        assert_eq!(pool.held_bytes(), 0);
        let again = pool.lease(10_000).expect("the same pages can be had");
        assert_eq!(again.as_ptr(), address, "the idle slab is taken before fresh memory");
    }

    /// Idle slabs are memory of the process, too.
    fn idle_bytes(pool: &Pool) -> u64 {
        let state = pool.lock();
        let idle: usize = state.idle.iter().map(|slab| slab.bytes).sum();
        assert_eq!(idle as u64, state.idle_bytes);
        assert!(state.idle_bytes + state.budget.held() <= state.budget.limit());
        state.idle_bytes
    }

    const PAGE: u64 = PAGE_BYTES as u64;

    #[test]
    fn idle_memory_makes_room_for_what_is_held() {
        let pool = Arc::new(Pool::new(8 * PAGE, 0));
        let leases = [1, 2, 3].map(|pages| pool.lease(pages * PAGE_BYTES).expect("pages"));
        drop(leases);
        assert_eq!(idle_bytes(&pool), 6 * PAGE);
        let charge = pool.charge(4 * PAGE);
        assert_eq!(idle_bytes(&pool), 3 * PAGE, "the two that were idle the longest have gone");
        let other = pool.lease(2 * PAGE_BYTES).expect("pages");
        assert_eq!(idle_bytes(&pool), 0);
        drop((charge, other));
        assert_eq!((idle_bytes(&pool), pool.held_bytes()), (2 * PAGE, 0));
    }

    struct Counted(std::sync::atomic::AtomicU32);

    impl Wake for Counted {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Polls once.
    fn polled<T>(future: Pin<&mut impl Future<Output = T>>, woken: &Arc<Counted>) -> Option<T> {
        match future.poll(&mut Context::from_waker(&Waker::from(woken.clone()))) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    #[test]
    fn who_waits_is_woken_and_who_leaves_gives_everything_back() {
        let pool = Arc::new(Pool::new(8 * PAGE, 0));
        let [a, b] = [pool.holder(), pool.holder()];
        let woken = Arc::new(Counted(0.into()));
        let times = || woken.0.load(std::sync::atomic::Ordering::Relaxed);
        let first =
            polled(std::pin::pin!(a.lease(6 * PAGE_BYTES)), &woken).expect("there is room").expect("pages");
        let mut second = Box::pin(a.lease(2 * PAGE_BYTES));
        let mut third = Box::pin(b.lease(3 * PAGE_BYTES));
        assert!(polled(second.as_mut(), &woken).is_none() && polled(third.as_mut(), &woken).is_none());
        assert_eq!(times(), 0);
        drop(first);
        assert_eq!(times(), 2, "both are granted");
        assert_eq!(pool.held_bytes(), 5 * PAGE, "a grant counts before it is fetched");
        // One is dropped with its grant in the post.
        drop(second);
        assert_eq!(pool.held_bytes(), 3 * PAGE);
        let third = polled(third.as_mut(), &woken).expect("it was granted").expect("pages");
        let mut fourth = Box::pin(b.lease(5 * PAGE_BYTES));
        assert!(polled(fourth.as_mut(), &woken).is_none());
        drop(fourth);
        let fifth = polled(std::pin::pin!(b.lease(PAGE_BYTES)), &woken);
        assert!(fifth.is_some(), "one that was withdrawn is in nobody's way");
        drop((third, fifth));
        assert_eq!(pool.held_bytes(), 0);
        assert!(pool.lock().waits.is_empty());
    }

    #[test]
    fn threads_that_ask_for_more_than_there_is_all_get_it() {
        let pool = Arc::new(Pool::new(16 * PAGE, 0));
        let most = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let ask = |number: usize| {
            let (pool, most) = (pool.clone(), most.clone());
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
                let holder = pool.holder();
                for round in 0..200 {
                    let pages = 1 + (number + round) % 5;
                    let mut lease = runtime.block_on(holder.lease(pages * PAGE_BYTES)).expect("pages");
                    most.fetch_max(pool.held_bytes(), std::sync::atomic::Ordering::Relaxed);
                    lease.as_mut_slice().fill(number as u8);
                    std::thread::yield_now();
                    assert!(lease.as_mut_slice().iter().all(|&byte| byte == number as u8));
                }
            })
        };
        let threads: Vec<_> = (0..8).map(ask).collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        assert_eq!(pool.held_bytes(), 0);
        let most = most.load(std::sync::atomic::Ordering::Relaxed);
        assert!((5 * PAGE..=16 * PAGE).contains(&most), "{most}");
    }
}
