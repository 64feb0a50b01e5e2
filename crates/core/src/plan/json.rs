//! The JSON of `plan --json`.
//!
//! Keys that the environment cannot fill are left out. Written by hand and in pieces: a plan may have
//! a hundred thousand members, and a general serializer takes twice as long over them.

use super::{Member, Plan};
use std::io::{self, Write};

/// Output goes out in pieces of this size.
const PIECE: usize = 1 << 16;

impl Plan {
    /// Writes the plan as one line of JSON.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let hosts: Vec<String> = self.hosts().iter().map(|host| quoted(&host.name)).collect();
        let mut piece = format!(
            "{{\"scheduler\":{},\"job\":{},\"attempt\":{},\"world\":{}",
            quoted(self.scheduler().name),
            self.job().map_or("null".to_owned(), quoted),
            self.attempt(),
            self.world()
        );
        if let Some(rank) = self.me() {
            piece.push_str(&format!(",\"self\":{{\"rank\":{rank}}}"));
        }
        piece.push_str(",\"members\":[");
        for member in &self.members {
            if member.rank > 0 {
                piece.push(',');
            }
            push_member(&mut piece, member, &hosts);
            if piece.len() >= PIECE {
                out.write_all(piece.as_bytes())?;
                piece.clear();
            }
        }
        piece.push(']');
        let notes: Vec<String> = self.notes().map(quoted).collect();
        if !notes.is_empty() {
            piece.push_str(&format!(",\"notes\":[{}]", notes.join(",")));
        }
        piece.push_str("}\n");
        out.write_all(piece.as_bytes())
    }
}

fn push_member(piece: &mut String, member: &Member, hosts: &[String]) {
    let mut numbers = itoa::Buffer::new();
    let mut field = |piece: &mut String, key: &str, number: u32| {
        piece.push_str(key);
        piece.push_str(numbers.format(number));
    };
    field(piece, "{\"rank\":", member.rank);
    piece.push_str(",\"role\":\"");
    // A role is letters, digits, - and _.
    piece.push_str(member.role.as_str());
    field(piece, "\",\"index\":", member.index);
    if let Some(place) = member.place {
        piece.push_str(",\"host\":");
        piece.push_str(&hosts[place.host as usize]);
        field(piece, ",\"local_rank\":", place.local_rank);
    }
    piece.push_str(",\"devices\":[");
    for (i, device) in member.devices.iter().flat_map(|devices| devices.iter()).enumerate() {
        // A device is letters, digits and -./_
        piece.push_str(if i > 0 { ",\"" } else { "\"" });
        piece.push_str(device.as_str());
        piece.push('"');
    }
    piece.push_str(if member.devices.is_some() { "]" } else { "],\"devices_known\":false" });
    match member.cpus {
        Some(cpus) => field(piece, ",\"cpus\":", cpus),
        None => piece.push_str(",\"cpus\":null"),
    }
    piece.push('}');
}

/// A JSON string.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
