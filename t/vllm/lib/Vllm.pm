package Vllm;

# Tests with real vLLM: its servers, nginx before them, and a comparison of the
# tokens in a response with those in kvroute's variables.
#
#     my $t = Vllm->new();
#     $t->fleet();                          # %%E0%%, %%E1%%, ...
#     $t->front('kvroute_probe interval=200ms;');
#
# Environment: that of Kvroute; KVROUTE_VLLM, the ports of running servers, which are left
# running (t/vllm/run).

use strict;
use warnings;

use Exporter qw(import);
use FindBin;
use JSON::PP;
use Kvroute;
use POSIX qw(:sys_wait_h);
use Time::HiRes qw(time);

# KV events are at a server's port plus this, replays at its port plus twice
# this

use constant EVENTS => 2000;

our @ISA = qw(Kvroute);
our @EXPORT = (@Kvroute::EXPORT, qw(usage words));

$ENV{PYTHONDONTWRITEBYTECODE} = 1;

# for other engines: t/sglang/lib/Sglang.pm

sub program { return 'examples/demo/vllm.py'; }
sub prefix { return 'vllm'; }


sub new {
    my ($class) = @_;

    return bless Kvroute->new(), $class;
}


# the servers that all tests share, with empty caches

sub fleet {
    my ($t) = @_;

    my @ports = split ' ', $ENV{KVROUTE_VLLM} // '';

    if (!@ports) {
        @ports = $t->ports(3);
        $t->server(@ports);
        $t->ready($ports[0]);
    }

    $t->{vars}{"E$_"} = $ports[$_] for 0 .. $#ports;
    $t->{fleet} = \@ports;

    $t->forget();

    return @ports;
}


# empties the caches, for which servers must be idle

sub forget {
    my ($t, @ports) = @_;

    for my $port (@ports ? @ports : @{$t->{fleet}}) {
        wait_for(sub {
            $t->post('/reset_prefix_cache', '', port => $port)->{status} == 200
            && !$t->metric($port, 'num_requests_running');
        });
    }
}


# starts servers of $t->{model} at consecutive ports; $t->ready() waits for them

sub server {
    my ($t, @ports) = @_;

    my @more = ref $ports[-1] ? @{pop @ports} : ();
    my $log = "$t->{dir}/vllm-$ports[0].log";

    unlink $log;

    $t->{server}{$ports[0]} = $t->spawn($log, 'python3',
        "$FindBin::Bin/../../" . $t->program(), 'start',
        '--count', scalar @ports, '--port', $ports[0],
        '--logs', "$t->{dir}/$ports[0]", '--events', EVENTS,
        $t->{model} ? ('--model', $t->{model}) : (), '--', @more);
}


sub ready {
    my ($t, $port) = @_;

    my $log = "$t->{dir}/vllm-$port.log";
    my $ended;

    wait_for(sub {
        return 1 if Kvroute::slurp($log) =~ /^ready/m;
        $ended = waitpid($t->{server}{$port}, WNOHANG) != 0;
        return $ended;
    }, 600);

    die "it does not start: " . Kvroute::slurp($log)
        . Kvroute::slurp("$t->{dir}/$port/engine1.log")
        if $ended || Kvroute::slurp($log) !~ /^ready/m;
}


# ends servers by SIGTERM, or with KILL at once, as if they had run out of memory

sub end {
    my ($t, $port, $signal) = @_;

    my $pid = delete $t->{server}{$port};

    if ($signal) {
        kill $signal, map { -$_ } children($pid);
        wait_for(sub { !$t->connect($port) });
    }

    kill 'TERM', $pid;
    waitpid($pid, 0);
    $t->{children} = [ grep { $_ != $pid } @{$t->{children}} ];
}


sub children {
    my ($pid) = @_;

    return split ' ', Kvroute::slurp("/proc/$pid/task/$pid/children");
}


# a metric of a server: the sum of its series that contain these words

sub metric {
    my ($t, $port, $name, $words) = @_;

    my $text = $t->get('/metrics', port => $port)->{body} // '';
    my $prefix = $t->prefix();
    my $sum;

    while ($text =~ /^$prefix:\Q$name\E(?:\{([^\n]*)\})? ([\d.e+-]+)$/mg) {
        my ($labels, $value) = ($1 // '', $2);
        $sum += $value if !defined $words || $labels =~ /$words/;
    }

    return $sum;
}


# nginx before all %%E..%%, with further lines for the upstream or the location; the
# variables POLICY and HTTP replace the policy and add lines to http

sub front {
    my ($t, $upstream, $location) = @_;

    my $args = $t->{server_args} // '';
    my @servers = map { "server 127.0.0.1:$t->{vars}{$_}$args;" }
                  sort grep { /^E\d+$/ } keys %{$t->{vars}};

    $t->{vars}{TOKENS} = join '|', '$arg_n', map { "\$kvroute_$_" } qw(
        prompt_tokens cached_tokens completion_tokens);
    $t->{vars}{SERVERS} = "@servers";
    $t->{vars}{UPSTREAM} = $upstream // '';
    $t->{vars}{LOCATION} = $location // '';
    $t->{vars}{HTTP} //= '';
    $t->{vars}{POLICY} //= 'kv_cache';

    $t->conf(<<'EOF')->run();
http {
%%TEMP%%
    %%LOG%%
    log_format tokens '%%TOKENS%%';
    access_log %%DIR%%/tokens.log tokens;
    %%HTTP%%
    kvroute_zone zone=z:8m;

    upstream vllm {
        zone vllm 128k;
        kvroute %%POLICY%% zone=z;
        %%SERVERS%%
        keepalive 16;
        keepalive_timeout 4s;
        %%UPSTREAM%%
    }

    server {
        listen 127.0.0.1:%%PORT%%;
        client_max_body_size 64m;
        client_body_buffer_size 1m;

        location / {
            proxy_pass http://vllm;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
            proxy_buffering off;
            proxy_read_timeout 10m;
            %%LOCATION%%
        }

        location = /kvroute/json { kvroute_status json; access_log off; }
    }
}
EOF
}


# sums of the peers' cache counters

sub cache {
    my ($t) = @_;

    my %sum;

    for my $p (@{$t->status()->{upstreams}{vllm}{peers}}) {
        $sum{$_} += $p->{cache}{$_} for keys %{$p->{cache}};
    }

    return \%sum;
}


# Posts, waits until no request is counted any more, and returns the response,
# with
#
#     said        its tokens: prompt, cached, reply; and the reply's text
#     logged      the same by kvroute's variables
#     predicted   cached tokens that kvroute had predicted
#     receipt     as in Kvroute::Receipts

my $asked = 0;

sub ask {
    my ($t, $uri, $body, %arg) = @_;

    my $n = 'ask' . ++$asked;
    my $before = $t->cache();

    $body = JSON::PP->new->canonical->latin1->encode($body) if ref $body;

    my $r = $t->post("$uri?n=$n", $body, timeout => 300,
                     headers => $arg{headers});

    $t->idle() or die "$uri: a request was not taken off its peer\n";

    my @v;

    wait_for(sub {
        my ($line) = $t->access_log('tokens.log') =~ /^$n\|(.*)\n/m or return;
        @v = map { $_ eq '-' ? undef : $_ } split /\|/, $line, -1;
    });

    my $after = $t->cache();

    $r->{json} = eval { decode_json($r->{body}) };
    $r->{said} = usage($r->{body});
    $r->{receipt} = $t->receipt($n);
    $r->{logged} = { prompt => $v[0], cached => $v[1], reply => $v[2] };
    $r->{predicted} = $after->{predicted_tokens} - $before->{predicted_tokens};

    return $r;
}


# tokens in a response or a stream: the last values in its events

sub usage {
    my ($body) = @_;

    my %said = (text => '');

    for my $json ($body =~ /^data: (\{.*\})\s*$/mg, $body =~ /\A(\{.*\})\s*\z/s) {
        my $e = eval { decode_json($json) } or next;

        for my $in ($e, $e->{response}, $e->{message}) {
            my $u = ref $in eq 'HASH' && ($in->{usage} // $in->{meta_info}) or next;

            $said{reply} = $u->{completion_tokens} // $u->{output_tokens};

            if (defined $u->{output_tokens} && !$u->{output_tokens_details}) {

                # Anthropic's, in three parts; SGLang's last event has the reply only

                next unless defined $u->{input_tokens};

                $said{cached} = $u->{cache_read_input_tokens} // 0;
                $said{prompt} = $u->{input_tokens} + $said{cached}
                                + ($u->{cache_creation_input_tokens} // 0);

            } else {
                my $d = $u->{prompt_tokens_details} // $u->{input_tokens_details};

                $said{prompt} = $u->{prompt_tokens} // $u->{input_tokens};
                $said{cached} = $u->{cached_tokens} // $d->{cached_tokens};
            }
        }

        $said{text} .= reply($e);
    }

    return \%said;
}


# the text in an event, or in a whole response

sub reply {
    my ($e) = @_;

    if (my $c = $e->{choices}[0]) {
        return $c->{delta}{content} // $c->{message}{content} // $c->{text} // '';
    }

    my $type = $e->{type} // '';

    return $e->{delta} if $type eq 'response.output_text.delta';
    return $e->{delta}{text} // '' if $type eq 'content_block_delta';

    my $content = $e->{content} // $e->{output};

    return join '', map { $_->{text} // '' }
           map { ref $_->{content} ? @{$_->{content}} : $_ }
           ref $content ? @$content : ();
}


# returns this many bytes of English; each seed, and each run of the tests, has
# its own

my @words = qw(the a model server request returns list of open files and their
               sizes in order please check whether any error line was found when
               program library source code work license copy version public);
my $run = sprintf '%x', time() * 1000;

sub words {
    my ($len, $seed) = @_;

    my $x = 12345 + 7919 * $seed;
    my $text = "This is number $seed of run $run.";

    while (length $text < $len) {
        $x = ($x * 1103515245 + 12345) % 2147483648;
        $text .= ' ' . $words[($x >> 8) % @words];
    }

    return substr($text, 0, $len);
}


# Runs conversations, several at a time; each prompt begins with a common system prompt and
# the earlier turns of the conversation, with the model's replies.  Returns for each request
# its status, tokens of the prompt, how many of them were cached, how many of them the
# conversation had sent or received before, and whether it went through nginx.
#
#     sessions, at_once, turns     numbers of these
#     prompt, more                 bytes of the first and of each further user's message
#     reply                        tokens
#     system                       bytes of the system prompt
#     away                         other conversations have turns between two of one, so
#                                  caches have been used for more when it returns
#     past                         1 of this many conversations goes directly to a server

use constant EVICTING => (sessions => 48, at_once => 12, turns => 4, away => 1,
                          prompt => 8000, more => 1500, reply => 24);

my $seed = 1_000_000;
my %system;

sub play {
    my ($t, %arg) = @_;

    my $size = $arg{system} || 3000;
    my $system = $system{$size} //= words($size, ++$seed);

    my @sessions = map { {
        turn => 0,
        known => 0,
        words => ($seed += $arg{turns} + 1),
        messages => [ { role => 'system', content => $system } ],
        port => $arg{past} && $_ % $arg{past} == 0
                ? $t->{fleet}[$_ / $arg{past} % @{$t->{fleet}}] : undef,
    } } 1 .. $arg{sessions};

    my @pipes;

    for my $n (0 .. $arg{at_once} - 1) {
        my @mine = @sessions[grep { $_ % $arg{at_once} == $n } 0 .. $#sessions];
        my @turns = $arg{away} ? (@mine) x $arg{turns}
                               : map { ($_) x $arg{turns} } @mine;

        my $pid = open my $pipe, '-|';

        die "fork: $!" unless defined $pid;

        if ($pid == 0) {
            print encode_json([ map { $t->turn($_, %arg) } @turns ]);
            close STDOUT;
            POSIX::_exit(0);
        }

        push @pipes, $pipe;
    }

    return map { @{decode_json(join '', <$_>)} } @pipes;
}


sub turn {
    my ($t, $s, %arg) = @_;

    my $turn = $s->{turn}++;

    push @{$s->{messages}}, {
        role => 'user',
        content => words($turn ? $arg{more} : $arg{prompt}, $s->{words} + $turn)
    };

    my $r = $t->post('/v1/chat/completions', Kvroute::chat(
        $s->{messages}, max_tokens => $arg{reply}, stream => $JSON::PP::true,
        stream_options => { include_usage => $JSON::PP::true }),
        timeout => 600, port => $s->{port});

    my $said = usage($r->{body});
    my $row = [ $r->{status}, $said->{prompt}, $said->{cached}, $s->{known},
                defined $s->{port} ? 0 : 1 ];

    $s->{known} = ($said->{prompt} // 0) + ($said->{reply} // 0);
    push @{$s->{messages}}, { role => 'assistant', content => $said->{text} };

    return $row;
}


# Load of others: these streams went to a server past kvroute.  Once it has seen that more
# than this share of the server's cache is in use, nothing new goes there; ends the streams.

sub others {
    my ($t, $port, $share, @streams) = @_;

    my $engine = sub { $t->peer('vllm', $port)->{engine}{$_[0]} };

    for my $name (qw(running waiting kv_usage)) {
        ok(wait_for(sub { $engine->($name) > ($name eq 'kv_usage' ? $share : 0) }, 120),
           "others' load: $name");
    }

    # asked until the answers to two probes in a row have told it

    my $probes = $engine->('probes');
    wait_for(sub { $engine->('probes') > $probes + 2 });

    my %to;

    $to{$t->ask('/v1/completions', { model => 'm', max_tokens => 1,
                                     prompt => words(600, ++$seed) })->{receipt}{peer}}++
        for 1 .. 6;

    is($to{"127.0.0.1:$port"} // 0, 0, "others' load: nothing new goes there");

    close $_ for @streams;
}


# runs them on empty caches; returns figures of the requests through nginx

sub measure {
    my ($t, %arg) = @_;

    $t->forget();

    my $before = $t->cache();
    my @sent = $t->each_server();
    my $begun = time();
    my @all = $t->play(%arg);
    my @rows = grep { $_->[4] } @all;

    die "a request was not taken off its peer\n" unless $t->idle();

    my $seconds = time() - $begun;
    my $after = $t->cache();
    my %diff = map { ($_ => $after->{$_} - $before->{$_}) } keys %$after;

    return {
        requests => scalar @rows,
        per_server => [ map { $_ - shift @sent } $t->each_server() ],
        errors => scalar(grep { $_->[0] != 200 } @all),
        prompt_tokens => sum(1, @rows),
        cached_tokens => sum(2, @rows),
        ideal_tokens => sum(3, @rows),
        predicted_tokens => $diff{predicted_tokens},
        delivered_tokens => $diff{delivered_tokens},
        predicted_over_delivered => ratio($diff{predicted_tokens},
                                          $diff{delivered_tokens}),
        cached_of_ideal => ratio(sum(2, @rows), sum(3, @rows)),
        flushes => $diff{flushes_usage} + $diff{flushes_probe},
        missed => $diff{missed},
        seconds => 0 + sprintf('%.1f', $seconds),
    };
}


# requests to each server

sub each_server {
    my ($t) = @_;

    return map { $t->peer('vllm', $_)->{requests} } @{$t->{fleet}};
}


sub sum {
    my ($i, @rows) = @_;

    my $sum = 0;
    $sum += $_->[$i] // 0 for @rows;

    return $sum;
}


sub ratio {
    my ($a, $b) = @_;

    return 0 + sprintf '%.4f', $b ? $a / $b : 0;
}


# puts figures into build/vllm.json, by the tests' folder, beside what is there

sub figure {
    my (%new) = @_;

    my ($name) = $FindBin::Bin =~ m{([^/]+)/?$};
    my $file = ($ENV{BUILD} || "$FindBin::Bin/../../build") . "/$name.json";
    my $all = eval { decode_json(Kvroute::slurp($file)) } // {};

    Kvroute::write_file($file, JSON::PP->new->canonical->pretty->encode(
                                   { %$all, %new }));
}


# servers first: who starts them ends all of their processes

sub cleanup {
    my ($t) = @_;

    $t->end($_) for keys %{$t->{server}};
    $t->SUPER::cleanup();
}


1;
