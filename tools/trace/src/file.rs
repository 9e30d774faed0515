//! A file as it is: a header, and a slot of four words for each event.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;

use crate::Error;

const MAGIC: &[u8; 8] = b"zknalloc";
const VERSION: u64 = 1;
const HEADER_BYTES: usize = 128;
const SLOT_BYTES: usize = 32;

/// The longest file that is read, unpacked, in bytes: a hundred million events.
const LEN_MAX: u64 = 4 << 30;

/// What is known of the process and of the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The number of the process.
    pub process: u64,
    /// The kernel's page size, and that of its huge pages (0: none), in bytes.
    pub page: u64,
    /// See `page`.
    pub huge_page: u64,
    /// Processors that the process could use.
    pub cpus: u64,
    /// Physical memory, in bytes.
    pub ram: u64,
    /// Page faults of the process before the trace began.
    pub faults_before: u64,
    /// Whether the process ended in order. What follows is 0 otherwise.
    pub finished: bool,
    /// Events in the file.
    pub events: u64,
    /// Events that found no place in the buffer.
    pub lost: u64,
    /// How long the trace is.
    pub nanoseconds: u64,
    /// Page faults of the process until its end, those before the trace included.
    pub faults: u64,
}

/// What became of a block that was to be resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing.
    Refused,
    /// It lies where it lay.
    InPlace,
    /// Its pages were moved.
    Moved,
    /// It was copied.
    Copied,
}

/// What happened. Sizes in bytes, as they were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A block was handed out.
    Taken {
        /// Where it lies.
        address: u64,
        /// What was asked for.
        size: u64,
        /// See `size`.
        align_log2: u8,
        /// Whether it was to read as zero.
        zeroed: bool,
        /// How much of it was not resident.
        fresh: u64,
    },
    /// A block was given back.
    Freed {
        /// Where it lay.
        address: u64,
        /// How much of it was resident, where that was looked at.
        resident: Option<u64>,
    },
    /// Which parts of the block that is freed next are resident at all.
    Parts {
        /// Where it lies.
        address: u64,
        /// A bit for each part, the first one's lowest.
        parts: u64,
        /// The length of a part.
        part: u64,
    },
    /// A block is about to be resized.
    Resizing {
        /// Where it lies.
        address: u64,
    },
    /// The block that this thread resizes is now of this size, here.
    Resized {
        /// Where it lies now.
        address: u64,
        /// What was asked for.
        size: u64,
        /// What became of it.
        outcome: Outcome,
    },
    /// What the allocator held: free, and in all.
    Held {
        /// Free and held.
        cached: u64,
        /// In use and free, as far as it is presumed to be resident.
        resident: u64,
    },
    /// What the kernel said of the process.
    Process {
        /// Its anonymous memory that is resident.
        anonymous: u64,
        /// Its page faults so far.
        faults: u64,
    },
    /// A phase begins.
    PhaseBegins {
        /// Its number.
        phase: u64,
    },
    /// A piece of the name of the phase that this thread has just begun or ended.
    Name {
        /// Bytes of it, zeros behind them.
        text: [u8; 16],
    },
    /// A phase ends.
    PhaseEnds {
        /// Its number.
        phase: u64,
    },
    /// How much of the process lies in huge pages.
    Huge {
        /// So many bytes.
        bytes: u64,
    },
    /// The kernel had no memory.
    Refused {
        /// What was asked for.
        size: u64,
    },
}

/// An event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, from the beginning of the trace.
    pub nanoseconds: u64,
    /// On which thread, from 1.
    pub thread: u16,
    /// What happened.
    pub what: What,
}

/// A file that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// What is known from the first, and at the end.
    pub header: Header,
    /// Every event, in the order in which they happened.
    pub events: Vec<Event>,
    /// Places in the file that were never written, by threads that the end of the process stopped.
    pub holes: u64,
}

impl Trace {
    /// Reads a file, packed or not.
    ///
    /// # Errors
    /// When the file cannot be read or is no trace.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let doing = |cause: &dyn std::fmt::Display| Error::doing(path.display(), cause);
        let bytes = unpacked(path).map_err(|cause| doing(&cause))?;
        Self::of(&bytes).map_err(|cause| doing(&cause))
    }

    /// Reads what a file holds.
    ///
    /// # Errors
    /// When it is no trace.
    pub fn of(bytes: &[u8]) -> Result<Self, Error> {
        let Some((head, slots)) =
            bytes.split_at_checked(HEADER_BYTES).filter(|(head, _)| head.starts_with(MAGIC))
        else {
            return Err(Error::new("this is no trace of zk-nalloc"));
        };
        let (words, _) = head.as_chunks();
        let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
        if word(1) != VERSION {
            return Err(Error::new(format!("the format is version {}, this reads {VERSION}", word(1))));
        }
        let header = Header {
            process: word(2),
            page: word(3),
            huge_page: word(4),
            cpus: word(5),
            ram: word(6),
            faults_before: word(7),
            finished: word(8) == 1,
            events: word(9),
            lost: word(10),
            nanoseconds: word(11),
            faults: word(12),
        };
        let mut trace = Self { header, events: Vec::with_capacity(slots.len() / SLOT_BYTES), holes: 0 };
        for slot in slots.as_chunks::<SLOT_BYTES>().0 {
            let (words, _) = slot.as_chunks();
            let word = |index: usize| words.get(index).map_or(0, |word| u64::from_le_bytes(*word));
            match event([word(0), word(1), word(2), word(3)]) {
                Some(event) => trace.events.push(event),
                None => trace.holes += 1,
            }
        }
        Ok(trace)
    }
}

/// What a slot says; `None` of one that was never written, or says nothing.
fn event([when, place, second, third]: [u64; 4]) -> Option<Event> {
    let address = place & !31;
    let (size, align_log2) = (second >> 8, second as u8);
    let what = match place & 31 {
        1 => What::Taken {
            address,
            size,
            align_log2: align_log2.min(62),
            zeroed: third & 1 == 1,
            fresh: third >> 1,
        },
        2 => What::Freed { address, resident: third.checked_sub(1) },
        3 => What::Parts { address, parts: second, part: third },
        4 => What::Resizing { address },
        5 => {
            let outcome = match third {
                1 => Outcome::InPlace,
                2 => Outcome::Moved,
                3 => Outcome::Copied,
                _ => Outcome::Refused,
            };
            What::Resized { address, size, outcome }
        }
        6 => What::Held { cached: second, resident: third },
        7 => What::Process { anonymous: second, faults: third },
        8 => What::PhaseBegins { phase: second },
        9 => {
            let text = (u128::from(second) | u128::from(third) << 64).to_le_bytes();
            What::Name { text }
        }
        10 => What::PhaseEnds { phase: second },
        11 => What::Refused { size },
        12 => What::Huge { bytes: second },
        _ => return None,
    };
    Some(Event { nanoseconds: when >> 16, thread: when as u16, what })
}

/// What a file holds, unpacked where it is packed.
fn unpacked(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = File::open(path)?.take(LEN_MAX);
    file.read_to_end(&mut bytes)?;
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes);
    }
    let mut all = Vec::new();
    GzDecoder::new(bytes.as_slice()).take(LEN_MAX).read_to_end(&mut all)?;
    Ok(all)
}

/// Sees to it that what is written is not the trace that is read.
///
/// # Errors
/// When it is.
pub fn see_apart(trace: &Path, output: &Path) -> Result<(), Error> {
    let place = |path: &Path| std::fs::metadata(path).map(|data| (data.dev(), data.ino())).ok();
    match place(output).filter(|&there| place(trace) == Some(there)) {
        Some(_) => {
            Err(Error::new(format!("{} is the trace itself; --output names another file", output.display())))
        }
        None => Ok(()),
    }
}

/// Packs a file into another one, which is read as well: a tenth of its length.
///
/// # Errors
/// When one cannot be read, or the other not be written, or both are the same.
pub fn pack(from: &Path, to: &Path) -> Result<u64, Error> {
    see_apart(from, to)?;
    let bytes = unpacked(from).map_err(|cause| Error::doing(from.display(), cause))?;
    Trace::of(&bytes).map_err(|cause| Error::doing(from.display(), cause))?;
    let doing = |cause| Error::doing(to.display(), cause);
    let file = File::create(to).map_err(doing)?;
    let mut packer = GzEncoder::new(file, Compression::best());
    packer.write_all(&bytes).map_err(doing)?;
    let file = packer.finish().map_err(doing)?;
    file.metadata().map(|data| data.len()).map_err(doing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(slots: &[[u64; 4]]) -> Vec<u8> {
        let mut words = vec![u64::from_le_bytes(*MAGIC), VERSION, 4021, 4096, 2 << 20, 4, 1 << 30, 9, 1];
        words.resize(HEADER_BYTES / 8, 0);
        words.extend(slots.iter().flatten());
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn what_is_no_trace_is_refused_and_what_is_cut_is_read_as_far_as_it_goes() {
        assert!(Trace::of(b"").is_err() && Trace::of(b"zknalloc").is_err() && Trace::of(&[0; 4096]).is_err());
        let mut other = file(&[]);
        other[8] = 2;
        assert!(Trace::of(&other).unwrap_err().to_string().contains("version 2"));
        let whole = file(&[[7 << 16 | 3, 64 | 1, 100 << 8 | 6, 0], [0; 4], [1, 31, 0, 0]]);
        for len in HEADER_BYTES..=whole.len() {
            let trace = Trace::of(&whole[..len]).expect("a trace");
            assert_eq!(trace.events.len() + trace.holes as usize, (len - HEADER_BYTES) / SLOT_BYTES);
        }
        let trace = Trace::of(&whole).expect("a trace");
        assert_eq!((trace.header.process, trace.holes), (4021, 2));
        let what = What::Taken { address: 64, size: 100, align_log2: 6, zeroed: false, fresh: 0 };
        assert_eq!(trace.events, [Event { nanoseconds: 7, thread: 3, what }]);
    }

    #[test]
    fn noise_is_read_without_a_panic() {
        let mut state = 1_u64;
        let slots: Vec<[u64; 4]> = (0..20_000)
            .map(|_| {
                std::array::from_fn(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    state ^ state >> 33
                })
            })
            .collect();
        let trace = Trace::of(&file(&slots)).expect("a trace");
        assert!(!trace.events.is_empty() && trace.holes > 0);
        let story = crate::Story::of(&trace);
        let page = crate::picture::page("noise", &trace, &story);
        assert!(page.ends_with("</html>\n"));
    }

    #[test]
    fn packing_changes_nothing() {
        let folder = std::env::temp_dir().join(format!("zk-nalloc-pack-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        let [plain, packed] = ["plain", "packed"].map(|name| folder.join(name));
        let slots: Vec<[u64; 4]> = (1..3000).map(|n| [n << 20 | 1, n << 6 | 1, n << 14 | 6, 0]).collect();
        std::fs::write(&plain, file(&slots)).expect("written");
        let len = pack(&plain, &packed).expect("packed");
        let [a, b] = [&plain, &packed].map(|path| Trace::read(path).expect("a trace"));
        assert!(a == b && a.events.len() == 2999 && len < 40_000, "{len}");
        assert!(pack(&folder.join("none"), &packed).is_err());
        std::fs::remove_dir_all(&folder).expect("was made");
    }
}
