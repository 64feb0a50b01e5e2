//! `rallypoint hostlist`

use super::print;
use crate::args::HostlistCommand;
use crate::exit::{Exit, Failure};
use rallypoint::hostlist::{HostList, Order};
use std::io::{Read, Write};

/// Output is written in pieces of this size: a million names are never held.
const PIECE: usize = 1 << 16;

pub(super) fn run(command: &HostlistCommand) -> Result<Exit, Failure> {
    match command {
        HostlistCommand::Expand { lists } => expand(&read(lists)?),
        HostlistCommand::Count { lists } => print(format!("{}\n", read(lists)?.count()).as_bytes()),
        HostlistCommand::Fold { lists, keep_order } => {
            let order = if *keep_order { Order::Kept } else { Order::Sorted };
            let folded = HostList::fold(read(lists)?.names(), order)?;
            print(format!("{folded}\n").as_bytes())
        }
    }
}

/// All lists as one: arguments, or standard input.
fn read(lists: &[String]) -> Result<HostList, Failure> {
    let text = if lists.is_empty() {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text)?;
        text
    } else {
        lists.join(",")
    };
    Ok(text.parse()?)
}

fn expand(list: &HostList) -> Result<Exit, Failure> {
    let mut stdout = std::io::stdout().lock();
    let mut piece = String::with_capacity(PIECE + 256);
    let mut names = list.names();
    while names.next_into(&mut piece) {
        piece.push('\n');
        if piece.len() >= PIECE {
            stdout.write_all(piece.as_bytes())?;
            piece.clear();
        }
    }
    stdout.write_all(piece.as_bytes())?;
    stdout.flush()?;
    Ok(Exit::Success)
}
