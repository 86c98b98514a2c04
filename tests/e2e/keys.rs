//! Keys with the real programs: made, used, revoked, and in no log.

use assay_api::CreatedKey;
use assay_testkit::{LIMIT, Program, Roots};

use crate::service::{Service, program_of_assay};

const CHOSEN: &str = "assay_chosenElsewhere0123456789abcdefghij";

/// The code that a program ends with, and what it printed.
async fn end(program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String) {
    let mut command = program_of_assay(program);
    command.args(arguments).envs(variables.iter().copied());
    let mut program = Program::start(command);
    let status = program.ended_within(LIMIT).await;
    let output = program.rest_of_output().await.join("\n");
    (status.code().expect("it ends by itself"), output)
}

#[tokio::test]
async fn a_key_opens_the_service_and_shows_in_no_log() {
    let roots = Roots::new();
    roots.add_model("llama_gqa");
    let text = roots.add_data("a.txt", "Call me Ishmael.");
    let as_json = vec![("ASSAY_LOG", "json".to_owned())];
    let mut service = Service::start_in(roots, &[], as_json).await;
    service.add_worker("cpu:0");
    let (database, url) = (service.database_url(), service.url());

    let on_server = async |arguments: &[&str]| {
        let variables = [("DATABASE_URL", &*database), ("ADMIN_KEY", CHOSEN)];
        let (code, output) = end("assay-server", arguments, &variables).await;
        assert_eq!(code, 0, "{arguments:?}: {output}");
        output
    };
    let with = async |key: &str, arguments: &[&str]| {
        let variables = [("ASSAY_SERVER", &*url), ("ASSAY_API_KEY", key)];
        end("assay", arguments, &variables).await
    };

    let make = ["keys", "create", "--scope", "admin", "--name", "root"];
    let admin = on_server(&make).await;
    let chosen = ["--from-env", "ADMIN_KEY", "--if-absent"];
    for says in ["is stored", "is there already"] {
        let output = on_server(&[&make[..], &chosen].concat()).await;
        assert!(output.contains(says), "{output}");
    }
    let without = end("assay", &["jobs"], &[("ASSAY_SERVER", &url)]).await;
    assert_eq!(without.0, 3, "{}", without.1);

    let submit = ["submit", "--model", "llama_gqa", "--dataset", "a.txt"];
    let (code, job) = with(CHOSEN, &submit).await;
    assert_eq!(code, 0, "{job}");
    let text = text.display().to_string();
    for command in [
        &["watch", &*job][..],
        &["results", &job],
        &["documents", &job],
        &["datasets", "upload", &text],
        &["archive", &job, "--output", &format!("{text}.zip")],
        &["jobs"],
        &["workers"],
    ] {
        let (code, output) = with(&admin, command).await;
        assert_eq!(code, 0, "{command:?}: {output}");
    }

    let make = [
        "keys", "create", "--scope", "read", "--name", "ci", "--json",
    ];
    let (code, output) = with(&admin, &make).await;
    assert_eq!(code, 0, "{output}");
    let reader: CreatedKey = serde_json::from_str(&output).expect("a key");
    assert_eq!(with(&reader.secret, &["jobs"]).await.0, 0);
    assert_eq!(with(&reader.secret, &["cancel", &job]).await.0, 3);
    let (code, list) = with(&admin, &["keys", "list"]).await;
    assert!(code == 0 && list.contains(&reader.key.id), "{list}");
    let (code, output) = with(&admin, &["keys", "revoke", &reader.key.id]).await;
    assert_eq!(code, 0, "{output}");
    assert_eq!(with(&reader.secret, &["jobs"]).await.0, 3);
    let list = on_server(&["keys", "list"]).await;
    assert!(list.contains("revoked"), "{list}");

    // The log names keys by their ids.
    assert!(service.has_logged(&reader.key.id));
    for key in [&*admin, CHOSEN, &reader.secret] {
        let secret = key.rsplit('_').next().expect("the last part");
        assert!(!service.has_logged(secret));
    }
    service.finish().await;
}

#[tokio::test]
async fn projects_are_made_and_changed_with_the_database_alone() {
    let service = Service::start(Roots::new()).await;
    let database = service.database_url();
    let projects = async |arguments: &[&str]| {
        let arguments = [&["projects"], arguments].concat();
        end("assay-server", &arguments, &[("DATABASE_URL", &database)]).await
    };
    let (code, output) = projects(&["create", "team-a", "--priority", "-5"]).await;
    assert!(code == 0 && output.contains("-5"), "{output}");
    assert_ne!(projects(&["create", "team-a"]).await.0, 0);
    assert_ne!(projects(&["create", "Team"]).await.0, 0);
    assert_ne!(projects(&["set", "team-b", "--priority", "1"]).await.0, 0);
    let quotas = [
        "--max-unfinished-jobs",
        "7",
        "--tokens-per-day",
        "123456789012",
    ];
    let (code, output) = projects(&[&["set", "team-a"], &quotas[..]].concat()).await;
    assert!(code == 0 && output.contains("123456789012"), "{output}");
    let set = ["set", "team-a", "--max-unfinished-jobs", "unlimited"];
    assert_eq!(projects(&set).await.0, 0);
    let (_, list) = projects(&["list"]).await;
    let team = list.lines().find(|line| line.starts_with("team-a"));
    let words: Vec<&str> = team.expect("the project").split_whitespace().collect();
    assert_eq!(words, ["team-a", "-5", "unlimited", "123456789012"]);
    service.finish().await;
}
