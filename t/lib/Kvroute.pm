package Kvroute;

# Test fixture: an nginx with the module, engines behind it, requests to it.
# Core Perl only.
#
#     use lib 't/lib';
#     use Kvroute;
#
#     my $t = Kvroute->new();
#     $t->engines(3, '--speed', 100);
#     $t->upstream('u', 'E0 E1 E2');
#     $t->conf(<<'EOF')->run();
#         location / { proxy_pass http://u; }
#     EOF
#     my $r = $t->post('/v1/chat/completions', chat('hello'));
#     is($r->{status}, 200, 'served');
#     $t->done();
#
# Environment: NGINX_BIN, KVROUTE_MODULE, KVROUTE_MODULES, KVROUTE_ENGINE, KVROUTE_WORKERS,
# KVROUTE_KEEP=1 (leaves the folder of the test).

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter;
use File::Basename qw(dirname);
use File::Path qw(remove_tree);
use File::Temp qw(tempdir);
use IO::Socket::INET;
use IO::Socket::UNIX;
use JSON::PP;
use POSIX qw(:sys_wait_h);
use Test::More;
use Time::HiRes qw(time sleep);

use FindBin;
use lib "$FindBin::Bin/lib";
use Kvroute::Client qw(chat popular text);
use Kvroute::Receipts;
use Kvroute::Servers;

our @ISA = qw(Kvroute::Client Kvroute::Servers Kvroute::Receipts);

our @EXPORT = (@Test::More::EXPORT, qw(chat popular text timeless wait_for version
                                     which));

# enables strict and warnings in the test

sub import {
    strict->import();
    warnings->import();
    goto &Exporter::import;
}


my @all;

my $root = abs_path(dirname(__FILE__) . '/../..');
my $build = $ENV{BUILD} || "$root/build";

$SIG{PIPE} = 'IGNORE';
$SIG{$_} = sub { exit 1 } for qw(INT TERM HUP);


sub new {
    my ($class, %arg) = @_;

    my $t = bless {
        dir => tempdir("kvroute-XXXXXX", TMPDIR => 1),
        bin => $ENV{NGINX_BIN} || 'nginx',
        module => $ENV{KVROUTE_MODULE}
                  || "$build/ngx_http_kvroute_module.so",
        engine => $ENV{KVROUTE_ENGINE} || "$build/t/engine",
        workers => $arg{workers} || $ENV{KVROUTE_WORKERS} || 1,
        owner => $$,
        children => [],
        groups => [],
        vars => {},
        taken => {},
        expected => [],
    }, $class;

    chmod 0755, $t->{dir};

    # The binary may have arguments: a loader and its library path.  At an upgrade
    # nginx starts the path that it was started by, in another directory.

    my ($bin, @args) = split ' ', $t->{bin};

    $t->{bin} = [ ($bin =~ m{/} ? abs_path($bin) : which($bin)) // $bin, @args ];

    $t->{vars}{PORT} = $t->port();
    $t->{vars}{DIR} = $t->{dir};

    $t->needs() unless @all;
    $t->receipts();

    push @all, $t;

    return $t;
}


# Skips a test that names a directive of an extension that is not loaded.  Lines
# that ask has() do not count.

sub needs {
    my ($t) = @_;

    my $text = slurp($0) =~ s/^.*->has\(.*\n//mgr;
    my %module = (first_token => 'continue',
                  map { $_ => $_ } qw(share events prefill continue budget));

    for (sort keys %module) {
        plan(skip_all => "no module $module{$_}")
            if $text =~ /\bkvroute_$_\b/ && !$t->has($module{$_});
    }
}


sub has {
    my ($t, $name) = @_;

    return $t->{module} eq 'static' || grep { /_${name}_module/ } $t->modules();
}


# Returns a free port that no other running test uses, outside the range that the
# system gives to clients.

my @claims;

sub port {
    my ($t) = @_;

    for (1 .. 1000) {
        my $port = $t->claim(10240 + int rand 21000);
        return $port if $port;
    }

    die "no free port\n";
}


# Returns several consecutive free ports

sub ports {
    my ($t, $n) = @_;

    for (1 .. 1000) {
        my $first = 10240 + int rand 21000;
        my @ports = grep { $_ } map { $t->claim($first + $_) } 0 .. $n - 1;

        return @ports if @ports == $n;
    }

    die "no $n free ports in a row\n";
}


# Claims a port for this process: an abstract socket name is unique, and vanishes
# with the process

sub claim {
    my ($t, $port) = @_;

    return if $t->{taken}{$port};

    my $claim = IO::Socket::UNIX->new(Local => "\0kvroute-test-$port",
                                      Listen => 1) or return;

    IO::Socket::INET->new(Listen => 1, LocalAddr => '127.0.0.1',
                          LocalPort => $port, Proto => 'tcp', ReuseAddr => 1)
        or return;

    push @claims, $claim;
    $t->{taken}{$port}++;

    return $port;
}


# Runs a program in the background

sub spawn {
    my ($t, $log, @cmd) = @_;

    my $pid = fork();
    die "fork: $!" unless defined $pid;

    if ($pid == 0) {
        open STDOUT, '>>', $log;
        open STDERR, '>&', \*STDOUT;
        exec @cmd or POSIX::_exit(127);
    }

    push @{$t->{children}}, $pid;

    return $pid;
}


# Adds an upstream to the configuration, and a location of its name unless the
# configuration has one.  An item that ends with ";" is a directive.  Others are
# servers: variables of ports, then parameters of each.  The upstream has a zone
# of 64k and "kvroute kv_cache zone=z;" unless the test gives it others or the
# item "plain".
#
#     $t->upstream('fifo', 'kvroute_queue max=4;', 'B0 B1 max_conns=1');

sub upstream {
    my ($t, $name, @items) = @_;

    my @lines;

    push @lines, "zone $name 64k;" unless grep { /^zone / } @items;
    push @lines, 'kvroute kv_cache zone=z;'
        unless grep { /^(plain$|kvroute(_shadow)?[ ;])/ } @items;

    for (grep { $_ ne 'plain' } @items) {

        if (/;$/ || !/^((?:[A-Z]\w*\s*)+)(.*)/) {
            push @lines, $_;
            next;
        }

        my ($ports, $parameters) = ($1, $2 ? " $2" : '');

        push @lines, map { "server 127.0.0.1:%%$_%%$parameters;" } split ' ', $ports;
    }

    push @{$t->{upstreams}}, $name unless $t->{upstream}{$name};
    $t->{upstream}{$name} = join "\n        ", "    upstream $name {", @lines;

    $t->{vars}{UPSTREAMS} = join '', map { "$t->{upstream}{$_}\n    }\n" }
                            @{$t->{upstreams}};
}


# Adds several, whose servers may fail without being marked as failed

sub upstreams {
    my ($t, @upstreams) = @_;

    while (my ($name, $items) = splice @upstreams, 0, 2) {
        $t->upstream($name, 'kvroute kv_cache zone=z;', 'kvroute_eject off;',
                     map { /;$/ ? $_ : "$_ max_fails=0" } @$items);
    }
}


# The modules to load: the router, and the extensions in its folder: all of
# them, or those that KVROUTE_MODULES names, such as "share events", or none for
# "router".  With KVROUTE_MODULE=static nginx contains all of them.

sub modules {
    my ($t) = @_;

    return if $t->{module} eq 'static';

    my $names = $ENV{KVROUTE_MODULES} // '*';
    my $dir = dirname($t->{module});

    return ($t->{module}, grep { -e } map { glob "$dir/ngx_http_kvroute_${_}_module.so" }
                                      grep { $_ ne 'router' } split ' ', $names);
}


# Puts directives into http {}, and into its server from the first location or
# listen on.  worker_* stays before http {}, further servers come after ours.  If
# the test has none of its own, adds a zone "z", no access log, and the status at
# /kvroute/.

sub http {
    my ($conf) = @_;
    my ($main, $http, $server, $more) = $conf =~
        /\A((?:worker_[^\n]*\n)*)(.*?)(^ *(?:location |listen |%%HTTP2%%).*?)?(^    server \{.*)?\z/ms;

    $http = "    kvroute_zone zone=z:2m;\n$http" if $http !~ /^ *kvroute_zone /m;
    $http .= "    access_log off;\n" if $http !~ /^ *(?:access_log |%%LOG%%)/m;
    $http .= "%%UPSTREAMS%%\n" if $http !~ /%%UPSTREAMS%%/;
    $server .= "    location /kvroute/ { kvroute_status; access_log off; }\n"
        if $conf !~ m{location (?:= )?/kvroute};

    return $main . "http {\n%%TEMP%%\n$http    server {\n"
           . "    listen 127.0.0.1:%%PORT%%;\n$server%%LOCATIONS%%\n    }\n"
           . ($more // '') . "}\n";
}


# Writes the configuration.  $conf is everything after load_module, or an
# argument of http(); %%NAMES%% in it are variables.

sub conf {
    my ($t, $conf) = @_;

    my $user = $> == 0 ? 'user root;' : '';
    my $dir = $t->{dir};
    my $vars = $t->{vars};

    $conf = http($conf) if $conf !~ /^http \{/m;

    my @locations = map { "location /$_/ { proxy_pass http://$_; }" }
                    grep { $conf !~ m{location /$_/ |kvroute_prefill $_\b} }
                    @{$t->{upstreams}};

    $conf =~ s/%%UPSTREAMS%%\n/$vars->{UPSTREAMS} \/\/ ''/e;
    $conf =~ s/%%LOCATIONS%%/join "\n        ", @locations/e;
    $conf =~ s{%%TEMP%%}{join "\n", map {
        "    ${_}_temp_path $dir/$_;"
    } qw(client_body proxy fastcgi uwsgi scgi)}e;

    $conf =~ s/%%(\w+)%%/exists $vars->{$1} ? $vars->{$1}
                         : die "%%$1%% is not known\n"/ge;

    my $workers = $t->{workers};
    my $globals = $ENV{KVROUTE_GLOBALS} || '';
    my $level = $ENV{KVROUTE_LOG} || 'info';

    write_file("$dir/nginx.conf", <<"EOF");
@{[ map { "load_module $_;\n" } $t->modules() ]}
$user
worker_processes $workers;
worker_rlimit_nofile 8192;
pid $dir/nginx.pid;
error_log $dir/error.log $level;
$globals
events { worker_connections 2048; }
$conf
EOF
    return $t;
}


sub command {
    my ($t, @args) = @_;

    return (@{$t->{bin}}, '-p', "$t->{dir}/", '-c', "$t->{dir}/nginx.conf",
            '-e', "$t->{dir}/error.log", @args);
}


# Runs nginx -t; returns whether it succeeded, and its output

sub check {
    my ($t) = @_;

    my $log = "$t->{dir}/check.log";
    unlink $log;

    # with -t nginx does not free its configuration

    local $ENV{ASAN_OPTIONS} = join ':', grep { $_ } $ENV{ASAN_OPTIONS},
                                                     'detect_leaks=0';

    my $pid = $t->spawn($log, $t->command('-t'));
    waitpid($pid, 0);
    my $ok = $? == 0;

    $t->{children} = [ grep { $_ != $pid } @{$t->{children}} ];

    return ($ok, slurp($log) =~ s/\Q$t->{dir}\E//gr);
}


sub run {
    my ($t) = @_;

    my $log = "$t->{dir}/nginx.out";

    $t->{master} = $t->spawn($log, $t->command('-g', 'daemon off;'));

    wait_for(sub {
        die "nginx failed: " . slurp($log)
            if waitpid($t->{master}, WNOHANG) == $t->{master};

        my $s = IO::Socket::INET->new("127.0.0.1:$t->{vars}{PORT}");
        return -s "$t->{dir}/nginx.pid" && $s && $t->workers() >= $t->{workers};
    }) or die "nginx does not start: " . slurp($log);

    return $t;
}


# Returns the pids of all workers

sub workers {
    my ($t) = @_;

    open my $fh, '<', "/proc/$t->{master}/task/$t->{master}/children"
        or return;
    my @pids = sort { $a <=> $b } split ' ', scalar(<$fh>) // '';

    return @pids;
}


# Returns the workers that are not shutting down

sub active_workers {
    my ($t) = @_;

    return grep {
        my $cmd = slurp("/proc/$_/cmdline");
        $cmd =~ /worker process/ && $cmd !~ /shutting down/;
    } $t->workers();
}


# Reloads; returns when all new workers are running

sub reload {
    my ($t) = @_;

    my %old = map { $_ => 1 } $t->workers();

    kill 'HUP', $t->{master};

    my @new;

    wait_for(sub {
        @new = grep { !$old{$_} } $t->active_workers();
        return @new == $t->{workers};
    }) or die "no reload: " . $t->log();

    # the socket is shared: old workers must have stopped accepting

    wait_for(sub {
        for my $pid (grep { $old{$_} } $t->workers()) {
            return 0 if slurp("/proc/$pid/cmdline") !~ /shutting down/;
        }

        return 1;
    });

    return @new;
}


# Kills a worker and waits until it is gone

sub kill_worker {
    my ($t, $pid, $signal) = @_;

    # a worker that is killed while it holds a zone's lock: the master releases it
    # and logs this

    push @{$t->{expected}}, qr/worker process $pid exited on signal/,
                            qr/shared memory zone "[^"]*" was locked by $pid\b/;

    kill $signal || 'KILL', $pid;

    wait_for(sub { !grep { $_ == $pid } $t->workers() });
}


sub expect_log {
    my ($t, $re) = @_;

    push @{$t->{expected}}, $re;
}


sub stop {
    my ($t, $signal) = @_;

    return unless $t->{master};

    my $pid = delete $t->{master};

    kill $signal || 'QUIT', $pid;
    my $gone = wait_for(sub { waitpid($pid, WNOHANG) != 0 });

    if (!$gone) {
        kill 'KILL', $pid;
        waitpid($pid, 0);
    }

    $t->{children} = [ grep { $_ != $pid } @{$t->{children}} ];

    return $gone;
}


sub log {
    my ($t) = @_;

    return slurp("$t->{dir}/error.log");
}


sub access_log {
    my ($t, $name) = @_;

    return slurp("$t->{dir}/" . ($name || 'access.log'));
}


# Returns the status as data

sub status {
    my ($t, $uri) = @_;

    my $r = $t->get($uri || '/kvroute/json');

    return decode($r->{body});
}


# Removes "since" from health and its members; each must be a time of this hour

sub timeless {
    my ($x) = @_;

    if (ref $x eq 'ARRAY') {
        timeless($_) for @$x;

    } elsif (ref $x eq 'HASH') {
        timeless($_) for values %$x;

        my $since = delete $x->{since};
        my $hour = join '|', map { POSIX::strftime('%Y-%m-%dT%H', gmtime $_) }
            time - 3600, time;
        Test::More::fail("since: $since")
            if defined $since && $since !~ /^(?:$hour):\d\d:\d\d\.000Z$/;
    }

    return $x;
}


# JSON::PP takes four times as long, and tests ask thousands of times.  ASCII
# without escapes is Perl, apart from the colons.  t/status.t uses JSON::PP.

my $token = qr/[{}\[\]:,]|"[^"\\]*"|-?\d[\d.eE+-]*|true|false|null/;

sub decode {
    my ($json) = @_;

    # Perl repeats a pattern at most 65,534 times

    1 while $json =~ /\G(?:$token){1,60000}+/gc;

    return eval { decode_json($json) }
        if $json =~ /[^\n\x20-\x7e]/ || $json !~ /\A\{/
           || substr($json, pos($json) // 0) !~ /\A\n?\z/;

    $json =~ s/([\$\@])/\\$1/g;
    $json =~ s/("[^"]*")(:?)/$1 . ($2 && '=>')/ge;

    return eval "package JSON::PP; +$json";
}


sub peer {
    my ($t, $upstream, $port, $status) = @_;

    $status ||= $t->status();

    my ($p) = grep { $_->{name} =~ /:$port$/ }
              @{$status->{upstreams}{$upstream}{peers}};

    return $p;
}


# Returns active requests, pending bytes, nginx's own count, and requests without
# an event, summed over all peers.  Tests call this most, so it does not decode.

sub load {
    my ($t) = @_;

    my $json = $t->get('/kvroute/json')->{body};
    my @load = (0, 0, 0, 0);

    return if ($json // '') !~ /\}\s*\z/;

    # causes of the health have a color and a number of active requests, too

    $load[0] += $_ for $json =~ /"state":\s*"(?!amber|red)\w+",\s*"active":\s*(\d+)/g;
    $load[1] += $_ for $json =~ /"pending":\s*(\d+)/g;
    $load[2] += $_ for $json =~ /"conns":\s*(\d+)/g;
    $load[3] += $_ for $json =~ /"unanswered_all":\s*(\d+)/g;

    return @load[0 .. 3];
}


# Waits until all counters are zero

sub idle {
    my ($t) = @_;

    return wait_for(sub {
        my ($active, $pending, $conns, $unanswered) = $t->load();
        return defined $active && $active == 0 && $pending == 0
               && $unanswered == 0;
    });
}


# --- helpers

# Waits for a condition: at most this many seconds on an idle machine; on a busy
# one for as many checks as an idle one makes.

sub wait_for {
    my ($sub, $timeout) = @_;

    $timeout ||= 60;

    my $begin = time();

    for (my $looks = 0; 1; $looks++) {
        my $v = $sub->();
        return $v if $v;

        my $past = time() - $begin;
        return if $past > $timeout && $looks > 20 * $timeout
                  || $past > 10 * $timeout;
        sleep 0.01;
    }
}


sub version {
    my ($t) = @_;

    $t->{version} ||= do {
        my $log = "$t->{dir}/version.log";
        my $pid = $t->spawn($log, @{$t->{bin}}, '-V');
        waitpid($pid, 0);
        $t->{children} = [ grep { $_ != $pid } @{$t->{children}} ];
        slurp($log);
    };

    my ($v) = $t->{version} =~ m{nginx/(\S+)};

    return sprintf '%03d%03d%03d', split /\./, $v;
}


# Returns the path of a program, from the build or the system

sub which {
    my ($name) = @_;

    return (grep { -f && -x } map { "$_/$name" } $build, split /:/, $ENV{PATH})[0];
}


sub slurp {
    my ($file) = @_;

    open my $fh, '<', $file or return '';
    local $/;
    my $data = <$fh>;

    return $data // '';
}


sub write_file {
    my ($file, $data) = @_;

    open my $fh, '>', $file or die "$file: $!";
    print $fh $data;
    close $fh;
}


# Stops nginx; fails if its log has an alert or a sanitizer report

sub quit {
    my ($t) = @_;

    ok($t->stop(), 'nginx has quit') if $t->{master};

    my @bad = grep {
        my $line = $_;
        !grep { $line =~ $_ } @{$t->{expected}};
    } grep { /\[(?:alert|crit|emerg)\]/ } split /\n/, $t->log();

    is(join("\n", @bad), '', 'no alerts in the error log');

    my $out = $t->log() . slurp("$t->{dir}/nginx.out");
    my @san = grep { /Sanitizer|runtime error:/ } split /\n/, $out;

    is(join("\n", @san[0 .. ($#san > 9 ? 9 : $#san)]), '',
       'no sanitizer reports');
}


sub done {
    my ($t) = @_;

    $t->quit();
    done_testing();
}


# Removes all processes and the folder

sub cleanup {
    my ($t) = @_;

    $t->stop('TERM');

    kill 'KILL', (map { -$_ } @{$t->{groups}}), @{$t->{children}};
    waitpid($_, 0) for @{$t->{groups}}, @{$t->{children}};
    $t->{children} = $t->{groups} = [];

    my $failed = !Test::More->builder->is_passing();

    if ($failed && -e "$t->{dir}/error.log") {
        my @lines = grep { !/\[(?:debug|info|notice)\]/ } split /\n/, $t->log();
        splice @lines, 0, @lines - 30 if @lines > 30;
        diag(join("\n", "$t->{dir}/error.log:", @lines));
    }

    remove_tree($t->{dir}) unless $ENV{KVROUTE_KEEP} || $failed;
}


END {
    my $status = $?;

    for my $t (@all) {
        $t->cleanup() if $t->{owner} == $$;
    }

    $? = $status;
}


1;
