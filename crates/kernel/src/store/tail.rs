//! Reading a log to its end.

use super::{SessionStore, StoreError};
use crate::ids::{LogKey, Seq};
use crate::record::{LogBody, Record};

/// Records of one page.
pub const PAGE: usize = 512;

/// Every durable record of `log`, decoded.
///
/// # Errors
/// As [`read_from`].
pub async fn read_all<B: LogBody>(store: &dyn SessionStore, log: &LogKey) -> Result<Vec<Record<B>>, StoreError> {
    read_from(store, log, Seq(1)).await
}

/// The durable records of `log` from `from` on, decoded. It ends at the head that its last page showed: records that came during the
/// read may or may not be in it, none is left out before one that is.
///
/// # Errors
/// [`StoreError`] from the store; [`StoreError::Corrupt`] and [`StoreError::Version`] name the record that cannot be read.
pub async fn read_from<B: LogBody>(
    store: &dyn SessionStore,
    log: &LogKey,
    from: Seq,
) -> Result<Vec<Record<B>>, StoreError> {
    let mut records: Vec<Record<B>> = Vec::new();
    let mut next = from.max(Seq(1));
    loop {
        let page = store.read(log, next, PAGE).await?;
        for record in page.records::<B>()? {
            if record.seq != next {
                let what = format!("the store answered seq {} where {next} was due", record.seq);
                return Err(StoreError::Corrupt { log: log.clone(), seq: next, what });
            }
            next = next.next();
            records.push(record);
        }
        if page.frames.is_empty() && page.head.seq >= next {
            let what = format!("the store holds no record, its head is {}", page.head.seq);
            return Err(StoreError::Corrupt { log: log.clone(), seq: next, what });
        }
        if page.head.seq < next {
            return Ok(records);
        }
    }
}
