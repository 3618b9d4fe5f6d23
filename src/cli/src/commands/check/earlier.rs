//! Rules that an earlier one leaves nothing for.

use cuvisor_policy::file::policy::Rule;
use cuvisor_policy::file::raw::Array;
use std::collections::{BTreeSet, HashMap};

/// How many kinds of condition a rule can have.
const CONDITIONS: usize = 6;
/// The place of `cgroup` among them.
const CGROUP: usize = 5;

/// The conditions of a rule, each as the set of its elements; none where it does not have the condition, or one that every
/// process meets.
type Conditions<'a> = [Option<BTreeSet<&'a [u8]>>; CONDITIONS];

/// The rules so far. Rules are found by an element that a later one must have to be covered by them, so that each is
/// compared with few others.
#[derive(Default)]
pub struct Earlier<'a> {
    rules: Vec<Conditions<'a>>,
    /// By each element of a rule's first condition that is more than a cgroup's `*`.
    by_element: HashMap<(usize, &'a [u8]), Vec<usize>>,
    /// Rules without such a condition: they match every process, or every one that has a cgroup.
    wide: Vec<usize>,
    names: HashMap<&'a [u8], usize>,
}

impl<'a> Earlier<'a> {
    /// The first earlier rule that matches every process that this one matches, as far as can be told from the texts.
    pub fn covering(&self, rule: &Rule<'a>) -> Option<usize> {
        let conditions = conditions(rule);
        let first_elements = conditions.iter().enumerate().filter_map(|(kind, elements)| Some((kind, *elements.as_ref()?.first()?)));
        let found = first_elements.filter_map(|element| self.by_element.get(&element)).flatten();
        found.chain(&self.wide).copied().filter(|at| covers(&self.rules[*at], &conditions)).min()
    }

    /// Whether an earlier rule has this one's name.
    pub fn has_name_of(&self, rule: &Rule<'a>) -> bool {
        rule.name.is_some_and(|name| self.names.contains_key(name))
    }

    /// Adds the next rule.
    pub fn add(&mut self, rule: &Rule<'a>) {
        let at = self.rules.len();
        let conditions = conditions(rule);
        let is_narrow = |kind, elements: &&BTreeSet<_>| kind != CGROUP || !is_any(elements);
        let narrow =
            conditions.iter().enumerate().find_map(|(kind, elements)| Some((kind, elements.as_ref().filter(|e| is_narrow(kind, e))?)));
        match narrow {
            Some((kind, elements)) => elements.iter().for_each(|element| self.by_element.entry((kind, *element)).or_default().push(at)),
            None => self.wide.push(at),
        }
        if let Some(name) = rule.name {
            self.names.entry(name).or_insert(at);
        }
        self.rules.push(conditions);
    }
}

fn conditions<'a>(rule: &Rule<'a>) -> Conditions<'a> {
    let elements = |list: Option<Array<'a>>| list.map(|array| array.elements().map(|value| value.text()).collect());
    // Every process has a program and a command line; a cgroup it may lack.
    let pattern = |list| elements(list).filter(|elements| !is_any(elements));
    [elements(rule.user), elements(rule.group), pattern(rule.exe), pattern(rule.argv), elements(rule.env), elements(rule.cgroup)]
}

fn is_any(elements: &BTreeSet<&[u8]>) -> bool {
    elements.contains(&b"*"[..])
}

/// Each condition of the earlier rule has all the elements of the later one's; of cgroups a `*` stands for all.
fn covers(earlier: &Conditions<'_>, later: &Conditions<'_>) -> bool {
    earlier.iter().zip(later).enumerate().all(|(kind, pair)| match pair {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(wide), Some(narrow)) => wide.is_superset(narrow) || (kind == CGROUP && is_any(wide)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source;

    /// For each rule the earlier one that covers it.
    fn covered(text: &str) -> Vec<Option<usize>> {
        let parsed = source::parse(text.as_bytes());
        let mut earlier = Earlier::default();
        let mut found = Vec::new();
        for rule in &parsed.rules {
            found.push(earlier.covering(rule));
            earlier.add(rule);
        }
        found
    }

    #[test]
    fn the_first_rule_that_covers_a_later_one_is_found() {
        let rule = |conditions: &str| format!("[[rule]]\n{conditions}\ndevices = [0]\n");
        let text = |rules: &[&str]| rules.iter().map(|conditions| rule(conditions)).collect::<String>();
        let users = [
            "user = [\"a\", \"b\"]",
            "user = [\"b\"]",
            "user = [\"c\", \"a\"]",
            "user = [\"c\"]\nexe = [\"x\"]",
            "user = [\"*\"]",
            "user = [\"q\"]",
        ];
        assert_eq!(covered(&text(&users)), [None, Some(0), None, Some(2), None, None]);
        let groups = [
            "cgroup = [\"*\"]",
            "exe = [\"x\"]",
            "cgroup = [\"/a\"]\nuser = [\"u\"]",
            "exe = [\"*\", \"y\"]\nargv = [\"*\"]",
            "",
            "user = [\"q\"]",
        ];
        assert_eq!(covered(&text(&groups)), [None, None, Some(0), None, Some(3), Some(3)]);
    }
}
