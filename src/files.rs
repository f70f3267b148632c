//! Reads of the files that an operator names: regular files only, each read with a size limit and a deadline. Replacement of a
//! file's content in one step.
//!
//! A FIFO, a device or a mount that does not answer must not stop a start, a reload or a shutdown. A read runs on a thread of
//! its own. After the deadline the thread is abandoned: it cannot be ended, and nothing waits for it.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::Duration;

/// Deadline of a read of a small file, or of a directory. Shorter than that of a call, which reports it.
pub const READ_DEADLINE: Duration = Duration::from_secs(3);

/// Maximum number of threads that are reading, including abandoned ones. More reads fail at once.
const READ_THREADS_MAX: usize = 64;

/// Threads that are reading, including abandoned ones.
static READ_THREADS: AtomicUsize = AtomicUsize::new(0);

/// Place of a reading thread; free again when the thread ends.
struct ReadThreadPermit;

impl ReadThreadPermit {
    fn take() -> Option<Self> {
        let place = Self;
        // Dropped when there are too many, which gives the place back.
        (READ_THREADS.fetch_add(1, Ordering::Relaxed) < READ_THREADS_MAX).then_some(place)
    }
}

impl Drop for ReadThreadPermit {
    fn drop(&mut self) {
        READ_THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Reads at most `bytes_max` bytes from the start of a regular file. Blocks until `READ_DEADLINE`.
pub fn read_file_start(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    with_regular_file(path, READ_DEADLINE, move |file| read_start(&file, bytes_max))
}

/// Reads at most `bytes_max` bytes of an open file.
pub fn read_start(file: &File, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Opens a regular file and passes it to `read`, on another thread. Blocks until `deadline`.
///
/// Fails if the path names something else than a regular file, and with `TimedOut` after the deadline.
pub fn with_regular_file<T: Send + 'static>(
    path: &Path,
    deadline: Duration,
    read: impl FnOnce(File) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let owned = path.to_owned();
    run_with_deadline(path, deadline, move || read(open_regular_file(&owned, OpenOptions::new().read(true))?))
}

/// Runs `action`, which uses `path`, on another thread. Blocks until `deadline`; then fails with `TimedOut`, and the thread
/// is abandoned. Fails at once if too many threads are abandoned already.
pub fn run_with_deadline<T: Send + 'static>(
    path: &Path,
    deadline: Duration,
    action: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let place = ReadThreadPermit::take().ok_or_else(|| too_many_threads(path))?;
    let (reply, answer) = sync_channel(1);
    thread::Builder::new().name("file-read".into()).spawn(move || {
        let _place = place;
        hang_at_fail_point();
        // Without a receiver, the caller has given up.
        let _ = reply.send(action());
    })?;
    match answer.recv_timeout(deadline) {
        Ok(result) => result,
        Err(RecvTimeoutError::Timeout) => Err(timed_out(path, deadline)),
        Err(RecvTimeoutError::Disconnected) => Err(io::Error::other("the read panicked; see the server's log")),
    }
}

/// Blocks for ever, as a mount that does not answer, if the fault is enabled and the file that it names exists.
fn hang_at_fail_point() {
    fail::fail_point!("hang_file_reads", |marker: Option<String>| {
        while marker.as_ref().is_some_and(|marker| Path::new(marker).exists()) {
            thread::sleep(Duration::from_secs(3_600));
        }
    });
}

fn timed_out(path: &Path, deadline: Duration) -> io::Error {
    let text = format!("timed out reading {} after {} s; check its file system", path.display(), deadline.as_secs());
    io::Error::new(io::ErrorKind::TimedOut, text)
}

fn too_many_threads(path: &Path) -> io::Error {
    let text = format!(
        "timed out reading {}: {READ_THREADS_MAX} earlier reads have not ended; check its file system",
        path.display()
    );
    io::Error::new(io::ErrorKind::TimedOut, text)
}

/// Opens a regular file without blocking. Fails for anything else, such as a FIFO, a device, a socket or a directory.
///
/// The kind is checked before, because opening a device can have effects, and on the open file, because the path may name
/// another file by then.
pub fn open_regular_file(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    match fs::metadata(path) {
        Ok(metadata) => check_is_regular(metadata.file_type())?,
        // The options may create it.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    do_not_block(options);
    let file = options.open(path)?;
    check_is_regular(file.metadata()?.file_type())?;
    Ok(file)
}

fn check_is_regular(kind: FileType) -> io::Result<()> {
    if kind.is_file() {
        return Ok(());
    }
    let text = format!("it is {}, and not a regular file; name a regular file", kind_name(kind));
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

#[cfg(unix)]
fn do_not_block(options: &mut OpenOptions) {
    use rustix::fs::OFlags;
    use std::os::unix::fs::OpenOptionsExt as _;
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    options.custom_flags(flags.bits().cast_signed());
}

#[cfg(not(unix))]
fn do_not_block(_options: &mut OpenOptions) {}

#[cfg(unix)]
fn kind_name(kind: FileType) -> &'static str {
    use std::os::unix::fs::FileTypeExt as _;
    match kind {
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_socket() => "a socket",
        _ if kind.is_char_device() || kind.is_block_device() => "a device",
        _ => "of an unknown kind",
    }
}

#[cfg(not(unix))]
fn kind_name(kind: FileType) -> &'static str {
    if kind.is_dir() { "a directory" } else { "of an unknown kind" }
}

/// Replaces the content of a regular file in one step: a reader finds the former content or the new one, also after a crash.
/// Writes a temporary file in the same folder, whose name starts with a dot, and renames it. The permissions stay. Blocks
/// until `READ_DEADLINE`; after `TimedOut` the file may still be replaced.
///
/// Fails for a symbolic link: its target may be in another folder, and may belong to a tool that would replace it again.
pub fn replace_content(path: &Path, content: Vec<u8>) -> io::Result<()> {
    let owned = path.to_owned();
    run_with_deadline(path, READ_DEADLINE, move || write_and_rename(&owned, &content))
}

fn write_and_rename(path: &Path, content: &[u8]) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if metadata.is_symlink() {
        let text = "it is a symbolic link; replace the file that it names";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    check_is_regular(metadata.file_type())?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut temporary = tempfile::Builder::new().prefix(".fireteam-").suffix(".tmp").tempfile_in(folder)?;
    temporary.write_all(content)?;
    temporary.as_file().set_permissions(metadata.permissions())?;
    temporary.as_file().sync_all()?;
    temporary.persist(path)?;
    sync_folder(folder)
}

/// Makes a rename durable.
#[cfg(unix)]
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(not(unix))]
fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// Checks that this process may create and rename files in a folder. Blocks until `READ_DEADLINE`.
pub fn check_folder_is_writable(folder: &Path) -> io::Result<()> {
    let owned = folder.to_owned();
    run_with_deadline(folder, READ_DEADLINE, move || may_write(&owned))
}

#[cfg(unix)]
fn may_write(folder: &Path) -> io::Result<()> {
    use rustix::fs::Access;
    Ok(rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)?)
}

#[cfg(not(unix))]
fn may_write(folder: &Path) -> io::Result<()> {
    let is_read_only = fs::metadata(folder)?.permissions().readonly();
    if is_read_only { Err(io::ErrorKind::PermissionDenied.into()) } else { Ok(()) }
}

/// Free space of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskSpace {
    /// Bytes that this process may still write.
    pub free_bytes: u64,
    /// Size of the file system, bytes.
    pub total_bytes: u64,
}

/// Free space of the file system of `folder`. Blocks until `READ_DEADLINE`.
pub fn disk_space(folder: &Path) -> io::Result<DiskSpace> {
    let owned: PathBuf = folder.to_owned();
    run_with_deadline(folder, READ_DEADLINE, move || read_disk_space(&owned))
}

#[cfg(unix)]
fn read_disk_space(folder: &Path) -> io::Result<DiskSpace> {
    let found = rustix::fs::statvfs(folder)?;
    let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
    Ok(DiskSpace { free_bytes: bytes(found.f_bavail), total_bytes: bytes(found.f_blocks) })
}

#[cfg(not(unix))]
fn read_disk_space(_folder: &Path) -> io::Result<DiskSpace> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    use super::*;

    /// SEC-14: only a regular file is read, also through a link; a FIFO without a writer does not block.
    #[test]
    fn file_that_is_not_regular_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "content").unwrap();
        symlink(path("file"), path("link")).unwrap();
        for name in ["file", "link"] {
            assert_eq!(read_file_start(&path(name), 4).unwrap(), b"cont", "{name}");
        }
        assert!(Command::new("mkfifo").arg(path("fifo")).status().unwrap().success());
        symlink("/dev/zero", path("zero")).unwrap();
        let _listener = UnixListener::bind(path("socket")).unwrap();
        for (name, kind) in [("fifo", "a FIFO"), ("zero", "a device"), ("socket", "a socket"), ("", "a directory")] {
            let error = read_file_start(&path(name), 4).unwrap_err().to_string();
            assert!(error.contains(kind) && error.contains("not a regular file"), "{error}");
            assert!(open_regular_file(&path(name), OpenOptions::new().append(true)).is_err(), "{name}");
        }
        assert_eq!(read_file_start(&path("missing"), 4).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    /// A read that does not end is given up, and the number of abandoned threads has a limit.
    #[test]
    fn read_that_does_not_end_times_out() {
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let path = Path::new("/mnt/gone");
        let hang = move || stopped.recv().map_err(io::Error::other);
        let error = run_with_deadline(path, Duration::from_millis(10), hang).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        assert!(error.to_string().starts_with("timed out reading /mnt/gone after"), "{error}");
        drop(stop);
    }

    /// The content is replaced in one step, with its permissions. What is no regular file stays as it is, and no temporary
    /// file is left.
    #[test]
    fn replaced_content_keeps_permissions_and_leaves_links_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "former").unwrap();
        fs::set_permissions(path("file"), fs::Permissions::from_mode(0o640)).unwrap();
        let reader = File::open(path("file")).unwrap();
        replace_content(&path("file"), b"new".to_vec()).unwrap();
        assert_eq!(fs::read(path("file")).unwrap(), b"new");
        assert_eq!(read_start(&reader, 100).unwrap(), b"former", "an open file has the former content");
        assert_eq!(fs::metadata(path("file")).unwrap().permissions().mode() & 0o777, 0o640);
        symlink(path("file"), path("link")).unwrap();
        let error = replace_content(&path("link"), b"other".to_vec()).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{error}");
        assert_eq!(replace_content(&path("missing"), vec![]).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(replace_content(folder.path(), vec![]).unwrap_err().to_string().contains("a directory"));
        assert_eq!(fs::read(path("file")).unwrap(), b"new");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
        check_folder_is_writable(folder.path()).unwrap();
        assert_eq!(check_folder_is_writable(&path("gone")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn disk_space_of_a_folder_is_known() {
        let space = disk_space(&std::env::temp_dir()).unwrap();
        assert!(0 < space.total_bytes && space.free_bytes <= space.total_bytes, "{space:?}");
    }
}
