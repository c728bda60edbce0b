#!/usr/bin/perl

# A store with foreign writers, and ports that are not a store: whatever they
# send, a host keeps sharing or logs the reason, keeps its rate of requests, and
# leaks nothing.

use lib 't/lib';
use Kvroute;
use Kvroute::Store;

use IO::Select;
use IO::Socket::INET;
use MIME::Base64;
use POSIX ();
use Time::HiRes qw(sleep time);

my $t = Kvroute->new();

my $store = Kvroute::Store->new($t)
    or plan(skip_all => 'no Redis and no Valkey');

# --- servers that are not a store: one for each of these zones

my $interval = 5;                        # ms

my $ID = '5-5';
my $EMPTY = "*0\r\n";
my $NONE = "*-1\r\n";

sub bulk { return '$' . length($_[0]) . "\r\n$_[0]\r\n" }
sub list { return '*' . @_ . "\r\n" . join '', @_ }

# entries in XREAD's format; id => batch

sub entries {
    my @all;

    while (my ($id, $batch) = splice @_, 0, 2) {
        push @all, list(bulk($id), list(bulk('b'), bulk($batch)));
    }

    return list(list(bulk('s'), list(@all)));
}

my %fake = (
    empty => sub { return $_[0] eq 'XADD' ? bulk($ID)
                          : $_[0] eq 'XREAD' ? $NONE : $EMPTY },
    twice => sub { return $_[0] eq 'XADD' ? bulk($ID) . bulk($ID)
                          : $_[0] eq 'XREAD' ? undef : $EMPTY },
    thanks => sub { return $_[0] eq 'XADD' ? "+OK\r\n"
                           : $_[0] eq 'XREAD' ? undef : $EMPTY },
    ids => sub { return $_[0] eq 'XADD' ? bulk($ID)
                        : $_[0] eq 'XREAD' ? entries('1' x 21 . '-1', 'x')
                        : $EMPTY },
    text => sub { return $_[0] eq 'XADD' ? bulk($ID)
                         : $_[0] eq 'XREAD' ? undef : bulk('x') },
    dies => \&dies);

# records each command as a line in a file

sub fake {
    my ($name) = @_;

    my $port = $t->port();
    my $listen = IO::Socket::INET->new(LocalAddr => '127.0.0.1', Listen => 8,
                                       LocalPort => $port, ReuseAddr => 1)
        or die "listen: $!";

    my $pid = fork();
    die "fork: $!" unless defined $pid;

    if ($pid) {
        push @{$t->{children}}, $pid;
        return $port;
    }

    $SIG{$_} = 'DEFAULT' for qw(INT TERM HUP);

    serve($name, $listen) while 1;
}

my $select;
my %input;

sub serve {
    my ($name, $listen) = @_;

    $select ||= IO::Select->new($listen);

    for my $c ($select->can_read(0.01)) {

        if ($c == $listen) {
            my $new = $listen->accept() or next;
            $new->autoflush(1);
            $select->add($new);
            next;
        }

        if (!sysread $c, $input{$c}, 1 << 20, length($input{$c} // '')) {
            forget($c);
            next;
        }

        while (my @words = command(\$input{$c})) {
            open my $log, '>>', "$t->{dir}/$name.commands";
            print $log "$words[0]\n";
            close $log;

            my $answer = $fake{$name}->($words[0], $c, $listen);

            print $c $answer if defined $answer;
            last unless defined $input{$c};
        }
    }
}

sub forget {
    my ($c) = @_;

    $select->remove($c);
    delete $input{$c};
    close $c;
}

# takes one command from the input

sub command {
    my ($in) = @_;

    $$in =~ /^\*(\d+)\r\n/ or return;

    my ($n, $at, @words) = ($1, $+[0]);

    for (1 .. $n) {
        substr($$in, $at) =~ /^\$(\d+)\r\n/ or return;
        $at += $+[0];
        return if length($$in) < $at + $1 + 2;
        push @words, substr($$in, $at, $1);
        $at += $1 + 2;
    }

    substr($$in, 0, $at) = '';

    return @words;
}

# It dies when a long answer is applied, a part in each turn of the event loop,
# and returns before that has ended: strace makes each turn long.

my $answers = 0;
my $tracer;

sub dies {
    my ($word, $c) = @_;

    return bulk($ID) if $word eq 'XADD';
    return $EMPTY if $word ne 'XREAD' || !-e "$t->{dir}/go";

    if ($answers++ == 0) {
        $tracer = slow(Kvroute::slurp("$t->{dir}/go")) if which('strace');

        print $c entries(map { ("8-$_", 'x' x 16384) } 1 .. 240);
        sleep 0.001 while unread($c->peerport());
        forget($c);
        return;
    }

    return if $answers > 2;

    print $c entries('9-1', 'x');
    sleep 0.001 while unread($c->peerport());

    if ($tracer) {
        kill 'TERM', $tracer;
        waitpid $tracer, 0;
    }

    Kvroute::write_file("$t->{dir}/over", '');

    return;
}

sub slow {
    my ($worker) = @_;

    my $pid = $t->spawn("$t->{dir}/strace.log", which('strace'), '-qq', '-p',
                        $worker, '-o', '/dev/null', '-e', 'trace=epoll_wait',
                        '-e', 'inject=epoll_wait:delay_enter=2000');

    wait_for(sub {
        return Kvroute::slurp("/proc/$worker/status") =~ /TracerPid:\s+[1-9]/
               || waitpid($pid, POSIX::WNOHANG) != 0;
    });

    return $pid;
}

# whether the other end has unread data

sub unread {
    my ($port) = @_;

    my $hex = sprintf '%04X', $port;

    for (split /\n/, Kvroute::slurp('/proc/net/tcp')) {
        my (undef, $local, undef, undef, $queues) = split;
        return 1 if $local =~ /:$hex$/ && $queues !~ /:0+$/;
    }

    return 0;
}

my @names = sort keys %fake;

# --- nginx

my $key = encode_base64(join('', map { chr int rand 256 } 1 .. 192), '');

Kvroute::write_file("$t->{dir}/key", $key);
chmod 0600, "$t->{dir}/key";

$t->backend('B');
$t->{vars}{STORE} = $store->{port};

my $zones = join '', map {
    my $port = fake($_);

    <<"EOC";
    kvroute_zone zone=$_:4m key_file=%%DIR%%/key;
    kvroute_share zone=$_ server=redis://127.0.0.1:$port;
    upstream $_ { zone u_$_ 256k; kvroute kv_cache zone=$_; server 127.0.0.1:%%B%%; }
EOC
} @names;

$t->upstream('llm', 'zone llm 256k;', 'kvroute kv_cache zone=z;', 'B');

$t->conf(<<"EOC");
%%LOG%%
    kvroute_zone zone=z:8m key_file=%%DIR%%/key;
    kvroute_share zone=z server=redis://127.0.0.1:%%STORE%%;

$zones

    location / { proxy_pass http://llm; }
EOC

sub share { return $t->status()->{zones}{$_[0]}{share} }

# the host's batches come back, from now on

sub echoes {
    my ($n) = $t->get('/kvroute/metrics')->{body}
              =~ /^kvroute_share_lag_seconds_count\{zone="z"\} (\d+)/m;

    return $n // 0;
}

sub works {
    my $before = echoes();

    return wait_for(sub {
        $t->post('/v1/chat/completions', chat(text(1000, 1)));
        return share('z')->{up} && echoes() > $before + 1;
    }, 20);
}

sub commands {
    my ($zone, $word) = @_;

    return scalar grep { $_ eq $word }
                  split /\n/, Kvroute::slurp("$t->{dir}/$zone.commands");
}

sub said {
    my ($zone, $what) = @_;

    return wait_for(sub {
        $t->log() =~ /kvroute_share of zone "$zone" is not working .*: $what/
    }, 20);
}

my $began = time();

$t->run();

my ($pid) = @{ wait_for(sub { my @w = $t->workers(); return @w && \@w }) };

# --- answers

# at most one request in each interval, by the clock of an earlier start

ok(wait_for(sub { commands('empty', 'XREAD') >= 40 }), 'empty answers');
my $asked = commands('empty', 'XREAD');
cmp_ok($asked, '<=', 1000 * (time() - $began) / $interval + 2,
       'do not cause a request at once');

ok(said('twice', 'unexpected answer'), 'two answers to a command');
ok(said('thanks', 'not a stream'), 'an answer that is not an id');
ok(said('ids', 'not a stream'), 'an invalid id');
ok(said('text', 'not a stream'), 'no list of entries');

is(share('thanks')->{batches_sent}, 0, 'unconfirmed batches do not count');

# --- entries by other writers

ok(works(), 'a stream');

sub add { return $store->command('XADD', 'kvroute:{z}', @_) }

is(add('9223372036854775900-1', 'b', 'x'), '9223372036854775900-1',
   'an id of 64 bits');
ok(works(), 'is read');
is(add('9223372036854775900-18446744073709551000', 'b', 'x'),
   '9223372036854775900-18446744073709551000', 'and so is its second part');
ok(works(), 'is read');

is($store->command('DEL', 'kvroute:{z}'), '1', 'the stream is deleted');
ok(works(), 'this is noticed, although no connection is lost');

add('18446744073709551615-18446744073709551615', 'b', 'x');
ok(wait_for(sub { share('z')->{refused} }), 'the stream has no more ids');
$store->command('DEL', 'kvroute:{z}');
ok(works(), 'sharing continues when it is deleted');

ok(add('*', 'b', 'x' x 5_000_000) =~ /-/, 'an entry of 5 MB');
ok(works(), 'is skipped');

# --- a store that dies; a mistake would only show with a sanitizer

Kvroute::write_file("$t->{dir}/go.new", $pid);
rename "$t->{dir}/go.new", "$t->{dir}/go";

ok(wait_for(sub { -e "$t->{dir}/over" }), 'a store that died is tried again');
ok(wait_for(sub { share('dies')->{bytes_received} % 2 }), 'and read');
is(($t->workers())[0], $pid, 'the worker is the same');

is($t->post('/v1/chat/completions', chat(text(1000, 2)))->{status}, 200,
   'requests are served');

$t->done();
