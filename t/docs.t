#!/usr/bin/perl

# The documentation: links work; every directive, variable, metric and reason in
# the source is described, and every described one exists.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use FindBin;
use Test::More;

my $root = abs_path("$FindBin::Bin/..");

sub slurp {
    open my $fh, '<', $_[0] or return '';
    local $/;
    return scalar(<$fh>) // '';
}

my @files = map { "$root/$_" }
    grep { /\.md$/ && -e "$root/$_" }
    (`cd $root && git ls-files 2>/dev/null` =~ /(.+)\n/g);

@files = map { abs_path($_) } glob "$root/*.md $root/docs/*.md $root/examples/*/*.md"
    unless @files;

plan(skip_all => 'no documentation here') unless @files;

# the anchor of a heading, as on the web

sub anchors {
    my ($text) = @_;

    $text =~ s/^```.*?^```//msg;

    return map { my $h = lc; $h =~ s/[`*]//g; $h =~ s/[^\w\- ]//g;
                 $h =~ tr/ /-/; $h => 1 } $text =~ /^#+ +(.+?) *$/mg;
}

for my $file (@files) {
    my $text = slurp($file);
    my $name = $file =~ s{^\Q$root\E/}{}r;
    my @bad;

    $text =~ s/^```.*?^```//msg;
    $text =~ s/`[^`\n]*`/``/g;

    for my $link ($text =~ /\]\(([^)\s]+)\)/g) {
        next if $link =~ /^(?:https?|mailto):/;

        my ($path, $anchor) = split /#/, $link, 2;
        my $to = length $path ? dirname($file) . "/$path" : $file;

        if (!-e $to) {
            push @bad, $link;

        } elsif (defined $anchor && $to =~ /\.md$/) {
            my %known = anchors(slurp($to));
            push @bad, $link unless $known{$anchor};
        }
    }

    is(join(' ', @bad), '', "$name: links");
    unlike($text, qr/[ \t]+\n/, "$name: no spaces at the ends of lines");
}

# --- terms: the glossary explains each, a page links it at its first use, and
# each thing has one name

my $glossary = slurp("$root/docs/glossary.md");
my %term;

for my $entry ($glossary =~ /^(### .+?)(?=^##|\z)/msg) {
    my ($heading, $said) = $entry =~ /^### ([^\n]+)\n\n(.*)/s;
    my ($anchor) = keys %{{ anchors("### $heading\n") }};

    like($said, qr/\w+ .*\.\)?\s*\z/s, "glossary: $heading is explained");
    $term{$anchor} = join '|', map { s/ /\\s+/gr } map { quotemeta =~ s/\\ / /gr }
                     split /, /, $heading;
}

ok(keys %term > 15, 'the glossary has terms');
for my $file (grep { m{^\Q$root\E/(?:README\.md$|docs/|examples/[^/]+/README\.md$)} }
              @files)
{
    my $text = prose($file);
    my $name = $file =~ s{^\Q$root\E/}{}r;

    # "peer" and "replica" are for names, other projects and internals

    unlike($text, qr/\b(?:peer|replica)s?\b/i, "$name: servers and engines")
        unless $name =~ m{^docs/(?:glossary|design|contributing)\.md$};

    next if $name =~ m{^examples/|^docs/(?:glossary|design|contributing)\.md$};

    my @bad;

    for my $anchor (sort keys %term) {
        my $link = index $text, "\x01$anchor\x01";
        my ($before) = $text =~ /^(.*?)\b(?:$term{$anchor})(?:e?s|ed|ing)?\b/si;

        push @bad, $anchor
            if defined $before && ($link < 0 || $link > length $before);
    }

    is(join(' ', @bad), '', "$name: terms are linked where they are used first");
}

# the status page: the glossary has its terms with the same explanations, and
# all of them

{
    my $page = "$root/ngx_http_kvroute_module/status/page";
    my ($words) = slurp("${page}_words.js") =~ /const words = \{(.*?)^\};/ms;
    my %said = ($words =~ s/"\n\s*\+ "//gr) =~ /"([^"]+)": "([^"]+)"/g;
    my ($rows) = $glossary =~ /^## Words of the page\n(.*?)^## /ms;
    my %row = $rows =~ /^\| ([^|]+) \| ([^|]+) \|$/mg;

    delete $row{$_} for grep { /^-+$/ } keys %row;
    is_deeply(\%row, \%said, 'the glossary has the words of the page');

    my $shown = slurp("$page.html") . join '', map { slurp($_) } glob "$page*.js";
    my @shown = ($shown =~ /\btitle: "([^"]+)"/g,
                 $shown =~ /^    \["([^"]+)",/mg,
                 $shown =~ /\$\{name\}: (\w+)`/g,
                 $shown =~ /<th\b[^>]*>([^<]+)</g);

    ok(@shown > 40, 'the terms are found');
    is(join(' ', grep { !$said{$_} && $_ ne 'time' } @shown), '',
       'each word of the page is explained');
}

# a page without code, headings and links, but with marks for links to the
# glossary

sub prose {
    my $text = slurp($_[0]);

    $text =~ s/^```.*?^```//msg;
    $text =~ s/^(?:    |#).*$//mg;
    $text =~ s/`[^`\n]*`|<a id="[^"]*">//g;
    $text =~ s/!\[[^\]]*\]\([^)]*\)//g;
    $text =~ s/\[[^\]]*\]\([^)\s]*glossary\.md#([^)\s]+)\)/\x01$1\x01/g;
    $text =~ s/\[[^\]]*\]\([^)]*\)//g;

    return $text;
}

# --- the source and the documentation agree

my $src = join '', map { slurp($_) } grep { !/_conf_old\.c$/ }
          glob "$root/ngx_http_kvroute*_module/{*,*/*,core/*/*}.c";
my $directives = slurp("$root/docs/directives.md");
my $variables = slurp("$root/docs/variables.md");

my %variable = map { $_ => 1 } map { slurp($_) =~ /ngx_string\("(kvroute_\w+)"\), NULL/g }
               glob "$root/ngx_http_kvroute*_module/{*,*/*}.c";
my %directive = map { $_ => 1 } map { slurp($_) =~ /ngx_string\("(kvroute\w*)"\),\s+NGX_/g }
                glob "$root/ngx_http_kvroute*_module/{*,*/*}.c";

ok(keys %variable > 5 && keys %directive > 5, 'both are found');

# in nginx.org's form: contexts are those in the code, in any table of commands

my %commands = map { slurp($_) =~
                     /ngx_string\("(kvroute\w*)"\),\s+(NGX_\w+(?:\s*\|\s*NGX_\w+)*)/g }
               glob "$root/ngx_http_kvroute*_module/{*,*/*}.c";
my @context = ([ 'MAIN', 'http' ], [ 'SRV', 'server' ], [ 'UPS', 'upstream' ],
               [ 'LOC', 'location' ], [ 'LIF', 'if in location' ]);

sub context {
    my ($flags) = @_;
    return join ', ', map { $_->[1] }
                      grep { $flags =~ /\bNGX_HTTP_$_->[0]_CONF\b/ } @context;
}

is(join(' ', sort keys %commands), join(' ', sort keys %directive),
   'the tables of commands have all directives');

for (sort keys %directive) {
    my ($text) = $directives =~ /^## \Q$_\E\n(.*?)(?=^## |\z)/ms;

    ok(defined $text, "$_ is described") or next;

    my ($syntax, $default, $context) = $text =~
        /^    Syntax:  (\Q$_\E\b.*;)\n    Default: (.+)\n    Context: (.+)\n/m;

    ok(defined $context, "$_ has syntax, default and context") or next;
    is($context, context($commands{$_}), "$_: contexts");
    like($default, qr/^(?:\xe2\x80\x94|\Q$_\E .+;|that of the upstream)$/,
         "$_: default");
}

# a limit for their number

my ($count, $params) = `$root/t/directives` =~ /^(\d+) directives, (\d+) parameters/;

cmp_ok($count, '<=', 22, 'directives');
cmp_ok($params, '<=', 55, 'parameters');
is($count, keys %directive, 't/directives counts all directives');

# parameters: all are described with their directive or with the policies

my $described = $directives . slurp("$root/docs/policies.md")
                . slurp("$root/docs/queue.md") . slurp("$root/docs/engines.md");

for (sort keys %{{ map { $_ => 1 } map { slurp($_) =~
       /(?:strn?cmp\(value\S*, |ngx_string\()"([a-z_]+=)/g }
       grep { !/_(?:api|conf_old)\.c$/ } glob "$root/ngx_http_kvroute*_module/{*,*/*}.c" }})
{
    like($described, qr/\b\Q$_\E/, "parameter $_ is described");
}

ok($directive{$_}, "$_ exists") for $directives =~ /^## (kvroute\w*)$/mg;

like($variables, qr/^\| `\$\Q$_\E`/m, "\$$_ is described") for sort keys %variable;
ok($variable{$_}, "\$$_ exists") for $variables =~ /^\| `\$(kvroute_\w+)`/mg;

# metrics in examples and documentation; some are by model and by tenant

my %metric = map { $_ => 1 } $src =~ s/conf_removed\("\w+"\)//gr =~ /"(kvroute_\w+)["{]/g,
             map { ("kvroute_model$_", "kvroute_tenant$_") }
             $src =~ /"kvroute_" of "(\w+)"/g;

my %told = map { s/_(?:bucket|sum|count)$//r => 1 }
           grep { /_(?:total|ratio|seconds|bytes|requests|bucket|sum|count)$/ }
           map { slurp($_) =~ /\b(kvroute_\w+)/g } glob "$root/docs/*.md";

ok($metric{$_}, "metric $_ exists") for sort keys %told;

my ($catalog) = slurp("$root/docs/status.md") =~ /^## Metrics\n(.*?)^## /ms;

is(join(' ', grep { !$directive{$_} && !$variable{$_} && !/_$/
                    && $catalog !~ /`\Q$_\E`/ } sort keys %metric),
   '', 'docs/status.md has all metrics');

# misspelled words, if aspell is installed

SKIP: {
    my ($aspell) = grep { -x } map { "$_/aspell" } split /:/, $ENV{PATH};

    skip 'aspell is not installed', 1 unless $aspell;
    skip 'no English dictionary', 1 unless `$aspell dicts` =~ /^en$/m;

    my %odd;

    for my $file (@files) {
        my $text = slurp($file);

        $text =~ s/^```.*?^```//msg;
        $text =~ s/^    .*$//mg;
        $text =~ s/`[^`\n]*`|<a id="[^"]*">//g;
        $text =~ s/\]\([^)]*\)//g;

        open my $fh, '>', "$root/build/spell.txt" or skip 'no build folder', 1;
        print $fh $text;
        close $fh;

        $odd{$_} = $file for split /\n/, `$aspell list --lang=en --ignore=3 --ignore-case < $root/build/spell.txt`;
    }

    my %known = map { lc($_) => 1 } split /\s+/, slurp("$root/t/docs.words");
    my @odd = grep { !$known{lc $_} } sort keys %odd;

    is(join(' ', @odd), '', 'spelling (t/docs.words has names of things)');
}

done_testing();
