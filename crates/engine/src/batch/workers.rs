//! The loop of a worker: whatever is to be done next, an object or a part of one.

use std::rc::Rc;

use super::shared::{Batch, Worker};
use crate::shard::Shard;
use crate::transfer::guard::TransferGuard;
use crate::transfer::part::Part;
use crate::transfer::workers::{run_lead, run_until_stopped};
use flatout_policy::batch_order::Work;

/// Works until the batch has nothing more to do, or is to stop; what is on its way then is dropped.
pub(crate) async fn run_batch_worker(shard: Rc<Shard>, mut worker: Worker) {
    let batch = worker.batch.clone();
    batch.gate.keep_time();
    tokio::select! {
        biased;
        () = work(&shard, &mut worker) => {}
        () = batch.stopped() => {}
    }
}

async fn work(shard: &Rc<Shard>, worker: &mut Worker) {
    let (number, batch) = (shard.number, worker.batch.clone());
    while batch.keeps(worker) {
        let Some(work) = batch.take(worker.prefers_parts).await else { break };
        match work {
            Work::Object(task) => {
                if let Some(hold) = batch.begin(task) {
                    run_lead(shard.clone(), hold, None).await;
                }
            }
            Work::Part(hold) => {
                hold.transfer.join_shard(number);
                part(shard, &batch, &hold).await;
            }
        }
    }
}

/// Fetches one part, if there is one left.
async fn part(shard: &Rc<Shard>, batch: &Batch, hold: &TransferGuard) {
    if hold.transfer.is_stopped() {
        return batch.close(hold);
    }
    let one = async {
        match hold.take_part(shard.number, None).await? {
            Some(turn) => Part::start(hold, turn).fetch(shard, None).await.map(drop),
            None => {
                batch.close(hold);
                Ok(())
            }
        }
    };
    run_until_stopped(&**hold, one).await;
}
