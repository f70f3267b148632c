# Prints one table of all promised figures. Reads benches/promises.txt, then target/long/steps, then the logs of the steps.

function trim(text) { gsub(/^ +| +$/, "", text); return text }

function row(goal, what, measured, limit, met) {
    printf "| %s | %s | %s | %s | %s |\n", goal, what, measured, limit, met
    count[met]++
}

# Compares a figure with a limit such as ">= 0.9".
function judge(goal, what, measured, limit,    part, met) {
    split(limit, part, " ")
    if (measured == "") met = "not measured"
    else if (part[1] == ">=") met = measured + 0 >= part[2] + 0 ? "met" : "MISSED"
    else met = measured + 0 <= part[2] + 0 ? "met" : "MISSED"
    row(goal, what, measured, limit, met)
}

BEGIN {
    FS = "|"
    print "| goal | what | measured | limit | met |"
    print "|---|---|---|---|---|"
}

FILENAME ~ /promises.txt$/ {
    if ($0 !~ /^#/ && NF == 5) {
        promises++
        goal[promises] = trim($1); part[promises] = trim($2); column[promises] = trim($3)
        limit[promises] = trim($4); promise[promises] = trim($5)
    }
    next
}

FILENAME ~ /steps$/ {
    split($0, word, " ")
    row("step " word[1], word[3] " s", word[2], "passed", word[2] == "passed" ? "met" : "MISSED")
    next
}

# Row of a test: its last field but one has the number of violations.
/^\|.*\| violations [0-9]+ \|$/ {
    violations = trim($(NF - 1))
    sub("violations ", "", violations)
    judge("test " trim($2), "violations", violations, "<= 0")
    next
}

# Row of the gate: row, table, counted, change.
FILENAME ~ /gate.log$/ && $0 ~ /^[a-z0-9_]+ +[0-9]+ +[0-9]+ +[-+0-9.]+%$/ {
    split($0, word, " ")
    judge("gate " word[1], "instructions, change in %", word[4], "<= 3")
    next
}

# Row of a benchmark. A goal may have its own limit, such as `TOLD <= 1`.
/^\| [A-Z]+[0-9]* .*\|$/ && NF >= 11 {
    name = trim($2); what = trim($3); ratio = trim($5)
    if (ratio == "") next
    if (name ~ /[<>]= [0-9.]+$/) {
        own = name; sub(/^[^<>]* /, "", own)
        sub(/ [<>]=.*/, "", name)
        judge(name, what, ratio, own)
        seen[name] = 1
        next
    }
    for (i = 1; i <= promises; i++) {
        if (goal[i] == name && index(what " " trim($4), part[i])) {
            judge(name, what, column[i] == "subject_us" ? trim($8) : ratio, limit[i])
            measured[i] = 1
            next
        }
    }
}

END {
    for (i = 1; i <= promises; i++) if (!measured[i] && !seen[goal[i]]) judge(goal[i], promise[i], "", limit[i])
    printf "\n%d met, %d missed, %d not measured\n", count["met"], count["MISSED"], count["not measured"]
}
