//! The reading of CUDA_VISIBLE_DEVICES: cuvisor-policy against the fake driver, which reads it by code of its own.

use crate::support::Child;
use cuvisor_policy::device::{PciId, Uuid};
use cuvisor_policy::inventory::{Gpu, Inventory};
use cuvisor_policy::visible;
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

/// Two of them begin alike.
const UUIDS: [&str; 4] = [
    "GPU-7fa61111-0000-4000-8000-000000000001",
    "GPU-7fa62222-0000-4000-8000-000000000002",
    "GPU-0a62bcde-1234-4abc-8def-00112233abcd",
    "GPU-0b000000-0000-4000-8000-00000000000f",
];

/// What people and programs write between commas.
fn element() -> impl Strategy<Value = String> {
    let words = [
        "0",
        "1",
        "2",
        "3",
        "4",
        "00",
        "+1",
        "-0",
        "-1",
        " 2",
        "2 ",
        "\t1",
        "1\n",
        "0x1",
        "1gpu",
        "0.5",
        "0;1",
        "1-2",
        "",
        " ",
        "one",
        "all",
        "none",
        "NoDevFiles",
        "\"0\"",
        "'1'",
        "[0]",
        "4294967296",
        "4294967297",
        "2147483648",
        "-4294967295",
        "18446744073709551616",
        "9223372036854775807",
        "GPU-",
        "GPU-7",
        "GPU-7fa6",
        "GPU-7fa61",
        "GPU-7fa62222",
        "GPU-0",
        "GPU-0a",
        "GPU-0A62BCDE",
        "GPU-ffffffff",
        "gpu-0a62bcde",
        " GPU-0a",
        "GPU-0a62bcde-",
        "GPU-0a62bcde-12",
        "GPU-0a62bcde1234",
        "GPU-0a ",
        "GPU-0ax",
        "GPU--",
        "GPU-GPU-0a",
        "0b000000",
    ];
    let whole = |k: usize| {
        [
            UUIDS[k].to_owned(),
            UUIDS[k].to_uppercase(),
            format!("{} ", UUIDS[k]),
            format!("{}0", UUIDS[k]),
            format!("{}-x", UUIDS[k]),
            UUIDS[k].replace("GPU", "MIG"),
            format!("GPU-{}", UUIDS[k][4..].replace('-', "")),
        ]
    };
    let all: Vec<String> = words.iter().map(|w| (*w).to_owned()).chain((0..4).flat_map(whole)).collect();
    let noise = proptest::string::string_regex("[-+0-9a-fGPU ;x]{0,8}").expect("a pattern");
    proptest::prop_oneof![6 => proptest::sample::select(all), 1 => noise]
}

#[test]
fn ten_thousand_values_are_read_alike() {
    let lists = proptest::collection::vec(element(), 1..5).prop_map(|elements| elements.join(","));
    let mut runner = TestRunner::deterministic();
    let values: Vec<String> = (0..10_000).map(|_| lists.new_tree(&mut runner).expect("a value").current()).collect();

    let child = Child::caller("reader").bare().unset("FAKE_CUDA_LOG").env("FAKE_CUDA_UUIDS", UUIDS.join(","));
    let file = child.path("values");
    std::fs::write(&file, values.iter().map(|v| format!("{v}\0")).collect::<String>()).expect("the values");
    let out = child.arg(file).run();
    let answers: Vec<&str> = out.told().lines().collect();
    assert_eq!(answers.len(), values.len());

    let mut inventory = Inventory::new();
    for (k, uuid) in (0u8..).zip(UUIDS) {
        let pci = PciId { domain: 0, bus: k, device: 0, function: 0 };
        inventory.add(Gpu { uuid: Uuid::parse(&uuid.as_bytes()[4..]), pci, minor: u32::from(k), model: Default::default() });
    }
    let mut kinds = std::collections::BTreeMap::<&str, usize>::new();
    for (value, answer) in values.iter().zip(answers) {
        let seen = visible::read(Some(value.as_bytes()), &inventory);
        let mut own = seen.answer.code().to_string();
        seen.indices().iter().for_each(|k| own.push_str(&format!(" {}", &UUIDS[*k][4..12])));
        assert_eq!(own, answer, "{value:?}");
        *kinds.entry(answer.split(' ').next().unwrap_or_default()).or_default() += 1;
    }
    assert!(kinds.len() == 3 && kinds.values().all(|n| *n > 300), "the values try all three answers: {kinds:?}");
}
