#!/usr/bin/perl

# The snapshot file of a zone: after a restart the prefixes are still known.
# nginx refuses a bad file with a line in the log and starts empty; it
# overwrites no foreign file.

use lib 't/lib';
use Kvroute;

use Fcntl qw(:flock);
use MIME::Base64;

my $t = Kvroute->new();
my $dir = $t->{dir};
my $file = "$dir/snap/k";

$t->backend("B$_") for 0 .. 3;

mkdir "$dir/snap";

for my $name ('key', 'other') {
    Kvroute::write_file("$dir/$name", encode_base64(join '',
                        map { chr int rand 256 } 1 .. 192));
    chmod 0600, "$dir/$name";
}

sub conf {
    my (%arg) = @_;

    my $more = $arg{more} // '';
    my $zone = $arg{zone} // 'zone=k:4m key_file=key snapshot=snap/k '
                             . 'snapshot_interval=1h';
    my $servers = join "\n", map { "server 127.0.0.1:%%B$_%%;" }
                  @{$arg{servers} || [0 .. 3]};

    $t->conf(<<"EOC");
    kvroute_zone $zone;
    $more

    upstream k {
        zone pk 64k;
        kvroute kv_cache zone=k;
        $servers
    }
    upstream s {
        zone ps 64k;
        kvroute sticky zone=k;
        $servers
    }

    add_header X-Matched \$kvroute_matched_bytes;
    location /k/ { proxy_pass http://k; }
    location /s/ { proxy_pass http://s; }
EOC
}

my @prompts = map { chat(text(4000, $_)) } 1 .. 100;

# the backends of all prompts, and how many prompts were found in their caches

sub ask {
    my (%of, $found);

    $found = 0;

    for my $i (0 .. $#prompts) {
        my $r = $t->post('/k/', $prompts[$i]);
        $of{$i} = $t->from($r);
        $found++ if ($r->{headers}{'x-matched'} || 0) > 2000;
    }

    return (\%of, $found);
}

sub session {
    return map {
        $t->to('/s/', chat('hello'), 'X-Session-Id' => "s$_")
    } 1 .. 20;
}

my $seen = 0;

# the lines of the log about snapshots since the last call

sub said {
    my $log = $t->log();
    my $new = substr $log, $seen;

    $seen = length $log;

    return join "\n", grep { /snapshot/ } split /\n/, $new;
}


# the fields of the status about the file

sub file_of { return $t->status()->{zones}{k}{snapshot} }

# the first start

conf();
my ($ok, $out) = $t->check();
ok($ok && !-e $file, 'nginx -t neither reads nor writes a file');
unlike($out, qr/snapshot/, 'and does not mention it');

$t->run();
like(said(), qr/"k" starts empty, there is no snapshot ".*snap\/k" yet/,
     'there is no file yet');

is_deeply([ @{file_of()}{qw(read refused written failed)} ], [0, 0, 0, 0],
          'the status: nothing was read');

my ($before, $cold) = ask();
my (undef, $warm) = ask();
my @sessions = session();

cmp_ok($cold, '<', 10, "empty: $cold of 100 prompts are found");
cmp_ok($warm, '>=', 95, "filled: $warm of 100 prompts are found");

$t->stop();

like(said(), qr/snapshot ".*" was written, [1-9]\d+ bytes/, 'it is written on exit');
is((stat $file)[2] & 07777, 0600, 'only its owner may read it');
ok(!-e "$file.tmp", 'no temporary file is left');

my $good = Kvroute::slurp($file);
unlike($good, qr/user|content|hello/, 'it contains no text of a prompt');


# servers in another order

conf(servers => [3, 1, 0, 2]);
$t->run();
like(said(), qr/"k" starts with \d+ entries of 4 servers from snapshot/,
     'a restart reads it');

cmp_ok(file_of()->{read}, '>', 100, 'the status: entries were read');

my ($after, $found) = ask();
cmp_ok($found, '>=', 0.95 * $warm, "$found prompts are found after a restart");
is(scalar(grep { $after->{$_} eq $before->{$_} } 0 .. 99), 100,
   'each at the server it was at');
is_deeply([session()], \@sessions, 'sessions stay at their servers');

$t->reload();
is(said(), '', 'a reload neither reads nor writes it');
(undef, $found) = ask();
cmp_ok($found, '>=', 95, 'a reload keeps the entries');


# a file that a killed worker has only begun is not read

Kvroute::write_file("$file.tmp", substr($good, 0, 5000));

my @pids = $t->workers();
kill 'KILL', $t->{master};
waitpid $t->{master}, 0;
kill 'KILL', @pids;
Kvroute::wait_for(sub { !grep { kill 0, $_ } @pids });
$t->{children} = [ grep { $_ != $t->{master} } @{$t->{children}} ];
delete $t->{master};
unlink "$dir/nginx.pid";
said();

conf(servers => [0 .. 2]);
$t->run();
like(said(), qr/starts with \d+ entries/, 'kill -9 leaves the old file');

($after, $found) = ask();
cmp_ok($found, '>=', scalar(grep { $_ ne 'B3' } values %$before) * 0.9,
       "one server gone: $found are found");
is(scalar(grep { $_ eq 'B3' } values %$after), 0, 'at the remaining servers');

$t->stop();
ok(!-e "$file.tmp", 'the temporary file is gone');


# bad files: refused, the log says why, nginx serves

conf();

my @bad = (
    [ 'empty', sub { '' }, 'not a snapshot' ],
    [ 'random', sub { join '', map { chr int rand 256 } 1 .. 30000 },
      'not a snapshot' ],
    [ 'only the header', sub { substr $_[0], 0, 24 }, 'truncated' ],
    [ 'truncated', sub { substr $_[0], 0, length($_[0]) - 1 }, 'truncated' ],
    [ 'half', sub { substr $_[0], 0, length($_[0]) / 2 }, 'truncated' ],
    [ 'longer', sub { $_[0] . 'x' }, 'truncated' ],
    [ 'another version', sub { substr $_[0], 8, 1, chr 99; $_[0] },
      'another version' ],
    [ 'a bit in a line', sub { substr($_[0], 300, 1) ^= "\1"; $_[0] },
      'damaged' ],
    [ 'a bit in a name', sub { substr($_[0], -2000, 1) ^= "\1"; $_[0] },
      'damaged' ],
    [ 'a length', sub { substr($_[0], -16, 1) ^= "\1"; $_[0] }, 'truncated' ],
    [ 'too large', sub { $_[0] x 500 }, 'larger than twice the zone' ],
);

for my $case (@bad) {
    my ($name, $change, $why) = @$case;
    my $copy = $good;

    unlink $file;
    Kvroute::write_file($file, $change->($copy));
    said();

    $t->run();
    like(said(), qr/\[warn\].*"k" starts empty: snapshot ".*\Q$why\E/,
         "$name: refused");
    is($t->post('/k/', $prompts[0])->{status}, 200, "$name: nginx serves");
    is(file_of()->{refused}, 1, "$name: the status says so");

    $t->expect_log(qr/another file is there/) if $name eq 'random';
    my $random = Kvroute::slurp($file);
    $t->stop();

    # a snapshot of another version is ours, and may be overwritten

    is(substr(Kvroute::slurp($file), 0, 9), substr($good, 0, 9),
       'a snapshot of another version is overwritten') if $name eq 'another version';

    next unless $name eq 'random';

    is(Kvroute::slurp($file), $random, 'a foreign file is not overwritten');
    like(said(), qr/\[error\].*another file is there: ".*snap\/k"/,
         'the log says why');
}

for my $case (
    [ 'another key', 'key_file=other', qr/another key/ ],
) {
    my ($name, $zone, $why) = @$case;

    Kvroute::write_file($file, $good);
    conf(zone => "zone=k:4m $zone snapshot=$file");
    said();
    $t->run();
    like(said(), qr/"k" starts empty: snapshot.*$why/, "$name: refused");
    (undef, $found) = ask();
    cmp_ok($found, '<', 10, "$name: nothing is found");
    $t->stop();
}


# a zone of another size

Kvroute::write_file($file, $good);
conf(zone => 'zone=k:8m key_file=key snapshot=snap/k');
$t->run();
(undef, $found) = ask();
cmp_ok($found, '>=', 0.95 * $warm, "a larger zone: $found are found");
$t->stop();


# by time, while nginx serves

unlink $file;
conf(zone => 'zone=k:4m key_file=key snapshot=snap/k snapshot_interval=1s');
$t->run();
ask();
ok(Kvroute::wait_for(sub { -s $file }), 'it is written while nginx runs');

ok(Kvroute::wait_for(sub { file_of()->{written} >= 2 }), 'again and again');
cmp_ok(file_of()->{bytes}, '>', 1000, 'the status says how large');
like(file_of()->{time}, qr/^20\d\d-/, 'the status says when');
is(file_of()->{failed}, 0, 'no write has failed');

# a folder that is removed, and put back

rename "$dir/snap", "$dir/gone";
$t->expect_log(qr/snapshot of a zone cannot be written/);
ok(Kvroute::wait_for(sub {
    $t->log() =~ /will start cold: (?:open|rename)\(\) ".*snap\/k.*" \(2: No such/
}), 'no folder: the log names the file');
is($t->post('/k/', $prompts[0])->{status}, 200, 'no folder: nginx serves');
cmp_ok(file_of()->{failed}, '>=', 1, 'no folder: the failure is counted');
like($t->get('/kvroute/metrics')->{body},
     qr/^kvroute_snapshot_failed_total\{zone="k"\} [1-9]/m,
     'no folder: the failure is exported');

rename "$dir/gone", "$dir/snap";
unlink $file;
ok(Kvroute::wait_for(sub { -s $file }), 'the folder is back: it is written');

# another process has locked the file and does not write: it was stopped

my $lock;
ok(Kvroute::wait_for(sub {
    open $lock, '>>', "$file.tmp" or return 0;
    flock $lock, LOCK_EX | LOCK_NB or return 0;
    return (stat $lock)[1] == ((stat "$file.tmp")[1] // 0);
}), 'locked');
ok(Kvroute::wait_for(sub {
    $t->log() =~ /will start cold: flock\(\) ".*snap\/k\.tmp" \(11: /
}), 'locked for long: the log names the file');
my $writes = file_of()->{written};
close $lock;
ok(Kvroute::wait_for(sub { file_of()->{written} > $writes }),
   'unlocked: it is written');

$t->stop();


# the binary is upgraded: the new process reads the last file of the old one,
# serves beside it, then alone; nginx takes a USR2 only if it is a daemon

sub gone {
    my ($pid) = @_;
    return Kvroute::slurp("/proc/$pid/stat") !~ /\) [^Z]/;
}

sub master { return (Kvroute::slurp("$dir/nginx.pid") =~ /^(\d+)/)[0] // 0 }

SKIP: {
    skip('nginx executes itself by its name', 8) if @{$t->{bin}} != 1;

    unlink $file;
    said();
    system($t->command());
    ok(Kvroute::wait_for(sub { master() && $t->get('/kvroute/json') }),
       'upgrade: a daemon');

    my $old = master();
    push @{$t->{children}}, $old;
    ask();

    $writes = file_of()->{written};

    ok(Kvroute::wait_for(sub { file_of()->{written} >= $writes + 2 }),
       'upgrade: all of it is in the file');
    said();

    kill 'USR2', $old;
    ok(Kvroute::wait_for(sub { master() && master() != $old }),
       'upgrade: another master');

    my $new = master();
    push @{$t->{children}}, $new;

    like(said(), qr/"k" starts with \d+ entries of 4 servers from snapshot/,
         'upgrade: it has read the file');

    kill 'QUIT', $old;
    ok(Kvroute::wait_for(sub { gone($old) }), 'upgrade: the old process has exited');

    cmp_ok(file_of()->{read}, '>', 100, 'upgrade: the new process has read entries');
    ($after, $found) = ask();
    cmp_ok($found, '>=', 0.95 * $warm, "upgrade: $found prompts are found");

    kill 'QUIT', $new;
    ok(Kvroute::wait_for(sub { gone($new) }), 'upgrade: the new process exits');
    $t->{children} = [ grep { $_ != $old && $_ != $new } @{$t->{children}} ];
}


# what nginx -t refuses

for my $case (
    [ 'no key', qr/"snapshot" needs "key_file=FILE"/, 'zone=k:4m snapshot=x' ],
    [ 'interval alone', qr/"snapshot_interval" has no effect without/,
      'zone=k:4m snapshot_interval=5s' ],
    [ 'no name', qr/"snapshot/, 'zone=k:4m key_file=key snapshot=' ],
    [ 'too often', qr/snapshot_interval.*from 1s to 1h/,
      'zone=k:4m key_file=key snapshot=x snapshot_interval=10ms' ],
    [ 'one file for two', qr/is already used by kvroute_zone "k"/,
      'zone=k:4m key_file=key snapshot=x',
      'kvroute_zone zone=l:4m key_file=key snapshot=x;' ],
) {
    my ($name, $why, $zone, $more) = @$case;

    conf(zone => $zone, more => $more);
    $t->expect_log(qr/\[emerg\].*$why/);
    ($ok, $out) = $t->check();
    ok(!$ok, "$name: refused");
    like($out, $why, "$name: the message");
}

$t->done();
