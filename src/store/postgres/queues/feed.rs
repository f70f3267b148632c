//! Reads what other servers change in the queues; `mark.rs` says how none of it is skipped.

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::types::Uuid;
use sqlx::{Executor, Row};

use crate::domain::id::{MatchId, TicketId};
use crate::store::postgres::line::{Line, ask, unavailable};
use crate::store::postgres::mark::{ALL_WITHIN, CHANGES_MAX, LOOK_EVERY, LOOK_WITHIN, Look, Mark};
use crate::store::postgres::queues::{read, statements as sql};
use crate::store::postgres::settle::Unsettled;
use crate::store::postgres::wake::{self, Wake};
use crate::store::postgres::{Replica, open, statements};
use crate::store::queues::{QueueFeed, QueueNews};
use crate::store::{StoreError, rows};

/// One server's reading.
#[derive(Debug)]
pub(super) struct ChangeFeed {
    looks: Line,
    all: Line,
    wake: Option<Wake>,
    listen: PgConnectOptions,
    replica: i64,
    silos: Option<Vec<i64>>,
    unsettled: Unsettled,
    /// `None` before everything has been read.
    mark: Option<Mark>,
}

impl ChangeFeed {
    pub(super) fn new(options: &PgConnectOptions, replica: &Replica, unsettled: Unsettled) -> Self {
        Self {
            looks: Line::new("queue feed", open::hurried(options)),
            all: Line::new("load", open::patient(options)),
            wake: None,
            listen: open::hurried(options),
            replica: replica.number.cast_signed(),
            silos: replica.silos(),
            unsettled,
            mark: None,
        }
    }

    /// Everything. The mark is older than what is read, so what is committed meanwhile is read again.
    pub(super) async fn read_all(&mut self) -> Result<QueueNews, StoreError> {
        let (line, silos) = (&mut self.all, &self.silos);
        let (mark, at): (i64, i64) = ask!(line, LOOK_WITHIN, "a look", |connection| sqlx::query_as(statements::MARK)
            .fetch_one(&mut *connection))?;
        let at = rows::from_ms(at);
        let read = ask!(line, ALL_WITHIN, "reading everything", |connection| read_every(connection, silos))?;
        line.close().await;
        self.mark = Some(Mark::new(mark, at));
        let mut news = sort(&read)?;
        (news.at, news.whole) = (at, true);
        Ok(news)
    }

    /// What is new, or `None` when that cannot be known any more.
    async fn read_new(&mut self) -> Result<Option<QueueNews>, StoreError> {
        let Some(mark) = &mut self.mark else { return Ok(None) };
        let (line, replica, silos) = (&mut self.looks, self.replica, &self.silos);
        let (known, unsettled) = (mark.known(), self.unsettled.list());
        let row: PgRow = ask!(line, LOOK_WITHIN, "a look", |connection| {
            let look = sqlx::query(sql::READ_CHANGES).bind(mark.from()).bind(&known).bind(replica).bind(CHANGES_MAX);
            look.bind(&unsettled).fetch_one(&mut *connection)
        })?;
        let look = Look::of(&row).map_err(unavailable)?;
        if !mark.is_sure(&look) {
            return Ok(None);
        }
        let named = Named::of(&row).map_err(unavailable)?;
        let mut news = QueueNews::default();
        if !named.is_nothing() {
            let read = ask!(line, LOOK_WITHIN, "a look", |connection| read_some(connection, &named, silos))?;
            news = sort(&read)?;
            named.without(&mut news);
        }
        news.at = look.at;
        news.more = mark.pass(look);
        Ok(Some(news))
    }
}

#[async_trait]
impl QueueFeed for ChangeFeed {
    async fn wait(&mut self) {
        let wake = self.wake.get_or_insert_with(|| Wake::listen(&self.listen, wake::QUEUES));
        wake.wait(LOOK_EVERY).await;
    }

    async fn read(&mut self) -> Result<QueueNews, StoreError> {
        match self.read_new().await? {
            Some(news) => Ok(news),
            None => self.read_all().await,
        }
    }
}

/// What changes have touched.
struct Named {
    tickets: Vec<Uuid>,
    matches: Vec<Uuid>,
    rated: Vec<Uuid>,
}

impl Named {
    /// The columns of `READ_CHANGES` after those of the look.
    fn of(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self { tickets: row.try_get(3)?, matches: row.try_get(4)?, rated: row.try_get(5)? })
    }

    fn is_nothing(&self) -> bool {
        self.tickets.is_empty() && self.matches.is_empty() && self.rated.is_empty()
    }

    /// Says of what was named and not found that it is gone; in the order of ids, as is what was found.
    fn without(self, news: &mut QueueNews) {
        let tickets = self.tickets.into_iter().map(|id| TicketId::from_bytes(id.into_bytes()));
        news.gone_tickets =
            tickets.filter(|id| news.tickets.binary_search_by_key(id, |stored| stored.ticket.id).is_err()).collect();
        news.gone_tickets.sort_unstable();
        let matches = self.matches.into_iter().map(|id| MatchId::from_bytes(id.into_bytes()));
        news.gone_matches =
            matches.filter(|id| news.matches.binary_search_by_key(id, |play| play.id).is_err()).collect();
        news.gone_matches.sort_unstable();
    }
}

/// Tickets, matches and ratings, of one moment.
type Rows = [Vec<PgRow>; 3];

async fn read_some(
    connection: &mut PgConnection,
    named: &Named,
    silos: &Option<Vec<i64>>,
) -> Result<Rows, sqlx::Error> {
    connection.execute(sql::BEGIN_READING).await?;
    let tickets = sqlx::query(sql::TICKETS).bind(&named.tickets).bind(silos).fetch_all(&mut *connection).await?;
    let matches = sqlx::query(sql::MATCHES).bind(&named.matches).bind(silos).fetch_all(&mut *connection).await?;
    let ratings = match named.rated.is_empty() {
        true => Vec::new(),
        false => sqlx::query(sql::RATINGS).bind(&named.rated).fetch_all(&mut *connection).await?,
    };
    connection.execute("commit").await?;
    Ok([tickets, matches, ratings])
}

async fn read_every(connection: &mut PgConnection, silos: &Option<Vec<i64>>) -> Result<Rows, sqlx::Error> {
    connection.execute(sql::BEGIN_READING).await?;
    let tickets = sqlx::query(sql::ALL_TICKETS).bind(silos).fetch_all(&mut *connection).await?;
    let matches = sqlx::query(sql::ALL_MATCHES).bind(silos).fetch_all(&mut *connection).await?;
    let ratings = sqlx::query(sql::ALL_RATINGS).fetch_all(&mut *connection).await?;
    connection.execute("commit").await?;
    Ok([tickets, matches, ratings])
}

fn sort([tickets, matches, ratings]: &Rows) -> Result<QueueNews, StoreError> {
    Ok(QueueNews {
        tickets: tickets.iter().map(read::ticket).collect::<Result<_, _>>()?,
        matches: matches.iter().map(read::play).collect::<Result<_, _>>()?,
        ratings: ratings.iter().map(read::rating).collect::<Result<_, _>>()?,
        ..QueueNews::default()
    })
}
